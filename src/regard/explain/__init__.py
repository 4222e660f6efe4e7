"""What a model did, for a person to see: attention, alignments, probabilities, and the pictures of them."""
