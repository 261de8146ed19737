"""From declarations to markup: JavaScript in V8, equations, diagrams and highlighted code. Knows no web framework."""
