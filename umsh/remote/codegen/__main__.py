"""Write native/generated from the tables; with --check fail when it differs."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from . import client, coverage, cudart, server, structs, tables
from .model import Call, prototypes
from .rules import Rules, calls

GENERATED = Path(__file__).resolve().parents[1] / "native" / "generated"
CALLS_PER_FILE = 110
CLIENT_HEAD = tables.MARK + '#include "client/generated.h"\n\nusing namespace umsh;\n\n'
SERVER_HEAD = (
    tables.MARK
    + '#include "generated/serve.h"\n#include "generated/structs.h"\n'
    + '#include "server/session.h"\n#include "server/structs.h"\n\n'
    "namespace umsh {\n\nusing InHandles = InHandlesOf<Session>;\n\n"
)


def chunks(parts: list[str]) -> list[str]:
    return ["\n".join(parts[i : i + CALLS_PER_FILE]) for i in range(0, len(parts), CALLS_PER_FILE)]


def exports(listed: list[Call], per_thread: list[str]) -> list[str]:
    made = []
    by_name = {c.name: c for c in listed}
    for c in listed:
        if c.client == "hand":
            continue
        made.append(client.unsupported(c.name, c.library) if c.unsupported else client.export(c))
    for symbol in per_thread:
        made.append(client.per_thread(by_name[re.sub(r"_pt[ds][sz]$", "", symbol)], symbol))
    return made


def files() -> tuple[dict[str, str], str]:
    """Name and content of what stands in native/generated, and the coverage document."""
    made = prototypes()
    every: list[Call] = []
    holders: list[Rules] = []
    out: dict[str, str] = {"kinds.h": tables.kinds(), "symbols.inc": tables.symbol_map(made["symbols"])}
    for library in ("driver", "nvml"):
        listed = calls(library, made)
        tables.number(listed, library)
        every += listed
        out[f"{library}_table.h"] = tables.table(listed, library)
        rules = Rules(library, made["structs"])
        variants = [
            n
            for n in sorted(made["libraries"][library]["older"])
            if re.search(r"_pt[ds][sz]$", n) and n not in rules.exported
        ]
        for n, text in enumerate(chunks(exports(listed, variants))):
            out[f"client_{library}_{n}.cpp"] = CLIENT_HEAD + text
        bodies = [server.serve(c) for c in listed if tables.served(c) and c.server == "generated"]
        for n, text in enumerate(chunks(bodies)):
            out[f"serve_{library}_{n}.cpp"] = SERVER_HEAD + text + "\n}  // namespace umsh\n"
        holders.append(rules)
    out |= {"structs.h": structs.translations(holders), "structs.cpp": structs.translation_bodies(holders)}
    out |= {"abi.h": structs.abi(holders), "ops.h": tables.ops(every), "calls.inc": tables.rows(every)}
    out |= {"serve.h": tables.serve_header(every), "dispatch.cpp": tables.dispatch(every)}
    out |= cudart.files(made)
    listed_by = {library: [c for c in every if c.library == library] for library in ("driver", "nvml")}
    listed_by["cudart"] = cudart.calls(made)
    return out, coverage.document(listed_by)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when something would change"
    )
    check = parser.parse_args().check
    generated, document = files()
    wanted = {GENERATED / name: text for name, text in generated.items()}
    if coverage.DOCUMENT.parent.is_dir():  # an installed package has no docs
        wanted[coverage.DOCUMENT] = document
    there = {p: p.read_text() for p in [*GENERATED.glob("*"), coverage.DOCUMENT] if p.is_file()}
    changed = sorted(p for p in wanted.keys() | there.keys() if wanted.get(p) != there.get(p))
    if check:
        print("\n".join(f"differs: {p.name}" for p in changed) or "nothing differs")
        return 1 if changed else 0
    GENERATED.mkdir(exist_ok=True)
    for path in changed:
        if path in wanted:
            path.write_text(wanted[path])
        else:
            path.unlink()
    print(f"{len(wanted)} files, {len(changed)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
