"""Models of other toolkits as runs of ours, and back."""
