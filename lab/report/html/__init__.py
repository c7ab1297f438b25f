"""HTML output: the rendering of templates and Markdown, and the page of a run."""
