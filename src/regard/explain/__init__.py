"""What a model did, shown to a person: attention, alignments, probabilities, reports, and pictures of them."""
