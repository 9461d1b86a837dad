"""Which of some modules a function imports: its handler's module, or one of its own that this leads to. What is written counts, whether or not it
comes to be executed; names that are made as the program runs do not.

Reads from standard input, in JSON, the handler's module (`handler`), the modules that are asked for (`known`), and where the function's files are: in a
ZIP file (`archive`), or by their names (`files`). Writes those of `known` that are imported and that the function has not itself, a line for each.
"""

import ast
import json
import sys
import zipfile


def names(tree, package):
    """The modules, and what may be one, that a module in this package imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = [*above, *([node.module] if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", None))
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.args[0].value


def imported(handler, files, read):
    """All modules that are imported, beginning with the handler's: the first parts of their names."""
    found, seen, left = set(), set(), [handler]
    while left:
        parts = left.pop().split(".")
        found.add(parts[0])
        for end in range(1, len(parts) + 1):
            path = "/".join(parts[:end])
            for file, package in ((f"{path}.py", parts[: end - 1]), (f"{path}/__init__.py", parts[:end])):
                if file not in files or file in seen:
                    continue
                seen.add(file)
                try:
                    tree = ast.parse(read(file))
                except (SyntaxError, ValueError, RecursionError):
                    # It says so itself, when it is imported.
                    continue
                left.extend(names(tree, package))
    return found


def main():
    asked = json.load(sys.stdin)
    if asked.get("archive"):
        archive = zipfile.ZipFile(asked["archive"])
        files, read = set(archive.namelist()), archive.read
    else:
        files = asked["files"]

        def read(name):
            with open(files[name], "rb") as file:
                return file.read()

    own = {name.split("/")[0].split(".")[0] for name in files}
    for name in sorted(imported(asked["handler"], files, read) & set(asked["known"]) - own):
        print(name)


main()
