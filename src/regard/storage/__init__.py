"""Folders on disk: opened safely whoever made them, and intact after a crash."""
