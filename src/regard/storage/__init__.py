"""Folders on disk: safe to open when the content is untrusted, and intact after a crash."""
