"""The references: one module per way of running reference code. `Reference.runner` names the module."""
