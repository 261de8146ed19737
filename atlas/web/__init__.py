"""Pages and API. Knows templates and HTTP; asks the engine for numbers and never imports torch."""
