"""The cells of a study that are missing, trained and scored.

job.py               what the process of a cell needs to know, and its exit status
score_cell.py        the scores of a trained cell on the dev set and the test sets
record_from_log.py   its record, made from the log of its run
train_cell.py        the process that trains one cell
workers.py           processes of cells on this machine
ray_cells.py         cells on a Ray cluster
slurm.py             a batch script for Slurm
grid_page.py         the page of the grid
runner.py            all cells, several at a time
"""
