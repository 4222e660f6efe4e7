"""A batch script that trains a study as an array of Slurm jobs. Every job is a runner, and all share one folder."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from string import Template

from regard.study.choices import cells_of
from regard.study.study_file import Study
from regard.text.bitext import named_folder

MAX_JOBS = 16  # in the script; an editor can change it
SAVE_SECONDS = 180  # before the time limit, cells are asked to save
MAX_RESTARTS = 50

# ${...} is for the shell, $$ stands for its dollar.
SCRIPT = Template("""#!/bin/bash
# Trains a study: every job of the array takes cells that no other one has, until all have ended.
# Adapt time, GPUs and cores to your cluster, and the array to the number of jobs that you may have. Then: sbatch FILE
# The array has a job for each cell that can be trained at first, at most $most. More cells may follow when candidates end.
#SBATCH --job-name=$name
#SBATCH --array=1-$jobs
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@$seconds
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=$log

srun $command
status=$$?
# 143: the time limit is near, and the cells are saved. The job continues in the queue.
if [ "$$status" -eq 143 ] && [ "$${SLURM_RESTART_COUNT:-0}" -lt $restarts ]; then
  scontrol requeue "$${SLURM_ARRAY_JOB_ID}_$${SLURM_ARRAY_TASK_ID}"
fi
exit "$$status"
""")


def slurm_script(
    study: Study, file: Path, *, out: Path, data: Path | str | None = None, at_once: int | None = None
) -> str:
    """Return a script for `sbatch` that trains the study in `file` into the folder `out`."""
    command = [sys.executable, "-m", "regard", "study", "run", str(file.absolute()), "--out", str(out.absolute())]
    folder = named_folder(data)
    command += [] if folder is None else ["--data", str(folder.absolute())]
    command += [] if at_once is None else ["--at-once", str(at_once)]
    # Every job of the array, and every restart of one, would try failed cells again.
    command += ["--no-retry"]
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in file.stem)
    return SCRIPT.substitute(
        name=f"study-{name}",
        jobs=min(len(cells_of(study, {})), MAX_JOBS),
        most=MAX_JOBS,
        seconds=SAVE_SECONDS,
        log=f"study-{name}-%A-%a.log",
        command=shlex.join(command),
        restarts=MAX_RESTARTS,
    )
