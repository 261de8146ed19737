"""From declarations to markup: JavaScript, equations, diagrams, highlighted code. Knows no web framework."""
