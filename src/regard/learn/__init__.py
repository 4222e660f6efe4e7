"""The site of `regard learn`: the paper section by section, the guides, and a reference, as static files."""
