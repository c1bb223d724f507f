#!/usr/bin/env python3
"""Draws a flame graph: perf record -g ...; perf script -F comm,tid,time,ip,sym,dso | scripts/flame-graph.py "TITLE" [NAME...] > graph.svg

Only threads whose name begins with one of NAME, where some are given. Width is the share of samples, callers are below.
Frames below a share of one in 250 are left out, so that a page stays small.
"""

import sys
from html import escape

WIDTH, ROW, LEAST = 1200, 16, 1 / 250
USER, KERNEL, THREAD = "#e8a33d", "#d9603b", "#9db4c8"


def samples(lines, names):
    """Stacks of a `perf script`, outermost first: (frame, is of the kernel)."""
    stack, comm = [], None
    for line in list(lines) + ["\n"]:
        if not line.strip():
            if comm and (not names or any(comm.startswith(n) for n in names)):
                yield [(comm, None)] + stack[::-1]
            stack, comm = [], None
        elif not line[0].isspace() or comm is None:
            comm = line.split()[0]
        else:
            # address symbol (object); what has neither is part of what called it.
            symbol, place = line.split(None, 1)[1].rstrip().rstrip(")").rsplit(" (", 1)
            if symbol == "[unknown]":
                symbol = place.rsplit("/", 1)[-1]
            if symbol != "[unknown]" and (not stack or stack[-1][0] != symbol):
                stack.append((symbol, place.startswith("[")))


def merged(stacks):
    root = {"count": 0, "children": {}}
    for stack in stacks:
        node = root
        node["count"] += 1
        for frame in stack:
            node = node["children"].setdefault(frame, {"count": 0, "children": {}})
            node["count"] += 1
    return root


def boxes(node, left, level, total):
    for (name, kernel), child in sorted(node["children"].items(), key=lambda i: i[0][0]):
        share = child["count"] / total
        if share >= LEAST:
            yield name, kernel, left, share, level
            yield from boxes(child, left, level + 1, total)
        left += share


def main():
    title, names = sys.argv[1], sys.argv[2:]
    root = merged(samples(sys.stdin, names))
    if not root["count"]:
        sys.exit("no samples")
    drawn = list(boxes(root, 0, 0, root["count"]))
    height = (max(b[4] for b in drawn) + 3) * ROW
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
          f'font-family="sans-serif" font-size="11">')
    print(f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>')
    print(f'<text x="6" y="{ROW}">{escape(title)}; {root["count"]} samples</text>')
    for name, kernel, left, share, level in drawn:
        x, width, y = left * WIDTH, share * WIDTH, height - (level + 1) * ROW
        colour = THREAD if kernel is None else KERNEL if kernel else USER
        print(f'<g><title>{escape(name)} {share:.1%}</title><rect x="{x:.1f}" y="{y}" width="{width - 0.3:.1f}" '
              f'height="{ROW - 1}" fill="{colour}"/>', end="")
        letters = int(width / 6)
        if letters > 3:
            print(f'<text x="{x + 2:.1f}" y="{y + 11}">{escape(name[:letters])}</text>', end="")
        print("</g>")
    print("</svg>")


main()
