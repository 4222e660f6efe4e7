"""regard verify"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.terminal import console, print_message

if TYPE_CHECKING:
    from regard.exchange.certificate import Bounds, Measured


def verify(
    folder: Annotated[Path, typer.Argument(help="A folder that regard export --to ENGINE wrote.", show_default=False)],
) -> None:
    """Check the certificate of an export, on any machine: files, versions, and the translations of the stored lines.

    Every file is compared with its size and hash. Then the engine translates and scores the lines in the certificate, in a
    process that cannot import regard, and the results are compared with ours, which the certificate has. The run that was
    exported is not needed. Other versions of packages than those of the certificate are reported; they are not errors.

    Examples:

      regard verify de-en-ct2

    Exit status: 1 if a file is damaged or the engine differs by more than the certificate's bounds, otherwise 0.
    """
    from regard.exchange.verifying import verify as check

    verified = check(folder, tell=print_message)
    print_measured(verified.measured, verified.certificate.bounds)
    print_message(f"{folder}: the files are those of the certificate, and {verified.certificate.target} agrees with us")


def print_measured(measured: Measured, bounds: Bounds) -> None:
    """Print how closely an engine agrees with us."""
    from regard.exchange.certificate import rows_of

    for name, value, bound in rows_of(measured, bounds):
        limit = f"   (bound {bound})" if bound else ""
        console.print(f"{name:50} {value}{limit}", markup=False, highlight=False, soft_wrap=True)
