"""Terminal output: tables, Markdown, charts, and text input."""
