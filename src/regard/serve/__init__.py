"""Translations over HTTP: our own API, one that LibreTranslate's clients understand, and a page."""
