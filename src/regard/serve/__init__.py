"""Translation over HTTP: our own API, a LibreTranslate-compatible API, and a web page."""
