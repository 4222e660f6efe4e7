"""Derive the results of bundles again after a change of tables, figures, or the baseline of a study. Nothing is trained.

    .venv/bin/python scripts/derive_bundles.py [BUNDLE ...]          studies/* if none is given

Question, baseline, groups and published scores are those of the study's file, BUNDLE.toml. Records, outputs and statistics
stay as they are, and must be as `regard study check` wants them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec.structs import replace

from regard.errors import ConfigError, RegardError, require
from regard.metrics.significance import Sampling
from regard.storage.folder import Folder, parse_json
from regard.study.bundle.bundle_files import MANIFEST, STUDY, load_member, read_bundled_study, read_manifest
from regard.study.bundle.bundle_records import BundleCheck, collect_bundle, read_bundled_records
from regard.study.bundle.bundle_writing import content_hashes, manifest_content
from regard.study.result.result_files import RESULT, result_files
from regard.study.study_file import Study, read_study, study_toml

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    require("matplotlib", extra="plots")  # else the figure would be that of before
    failed = False
    for bundle in map(Path, sys.argv[1:] or sorted((ROOT / "studies").glob("*/"))):
        try:
            problems = derive_again(bundle).problems
        except RegardError as error:
            problems = [str(error)]
        failed |= bool(problems)
        for problem in problems:
            print(f"{bundle.name}: {problem}", file=sys.stderr)
    return int(failed)


def derive_again(bundle: Path) -> BundleCheck:
    """Write the study, the result and the manifest of a bundle anew, unless its records have a problem."""
    study, found = described_as_in(bundle.with_suffix(".toml"), read_bundled_study(bundle)), BundleCheck()
    collected = collect_bundle(bundle, study, read_bundled_records(bundle, study, found), found)
    if found.problems:
        return found
    before = parse_json(load_member(bundle, RESULT), origin=RESULT)
    result = collected.result(Sampling(seed=before["trials_seed"], trials=before["trials"]))
    files = result_files(result, lambda text: print(text, file=sys.stderr))
    files[STUDY] = study_toml(study).encode()
    files[MANIFEST] = manifest_content(read_manifest(bundle) | content_hashes(files))
    for name, content in files.items():
        Folder(bundle).save_bytes(name, content)
    return found


def described_as_in(file: Path, bundled: Study) -> Study:
    """Return the study of a bundle with the question, baseline, groups and published scores of a file."""
    study = read_study(file)
    if study.rows.keys() != bundled.rows.keys():
        raise ConfigError(f"{file} has other rows than the bundle; run the study, and write a new bundle")
    rows = {
        name: replace(row, group=study.rows[name].group, published=study.rows[name].published)
        for name, row in bundled.rows.items()
    }
    return replace(bundled, question=study.question, baseline=study.baseline, rows=rows)


if __name__ == "__main__":
    raise SystemExit(main())
