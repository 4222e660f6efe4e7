"""Straightforward PyTorch programs of our task models, with padding, for `task_speed.py`.

Each module has two functions: `plain_model(recipe, sizes)` returns a module whose forward takes a padded batch and returns
the loss, summed over the labels that count; `padded(batch)` turns one of our CPU batches into the arguments of forward.
"""
