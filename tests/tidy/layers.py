"""Which folder may include which, read from CMakeLists.txt files.

A folder's targets name others in DEPS (kvkeep_library and its like) or in target_link_libraries. A
folder may include its own headers and those of every folder that its targets reach so. A folder
without a CMakeLists.txt belongs to the nearest one above it that has one.
"""

import collections
import re

Target = collections.namedtuple("Target", "name folder deps line")

_COMMAND = re.compile(r"^[ \t]*(\w+)\s*\(((?:[^()]|\([^()]*\))*)\)", re.MULTILINE)
_NAMED = ("SRCS", "DEPS", "CASES", "LABELS", "TIMEOUT", "PROCESSORS")


def _comments_blanked(text):
    return re.sub(r"#[^\n]*", "", text)


def _words(text, variables):
    for word in text.split():
        whole = re.fullmatch(r"\$\{(\w+)\}", word)
        yield from variables.get(whole.group(1), []) if whole else [word]


def _deps(command, words):
    """Returns the dependencies that a command gives its first word."""
    if command == "target_link_libraries":
        return [word for word in words[1:] if word not in ("PUBLIC", "PRIVATE", "INTERFACE")]
    if "DEPS" not in words:
        return []
    rest = words[words.index("DEPS") + 1:]
    end = next((i for i, word in enumerate(rest) if word in _NAMED), len(rest))
    return rest[:end]


def _targets_of(path, text):
    text = _comments_blanked(text)
    variables = collections.defaultdict(list)
    for match in _COMMAND.finditer(text):
        words = match.group(2).split()
        if match.group(1) == "set" and words:
            variables[words[0]] += words[1:]  # of all branches
    for match in _COMMAND.finditer(text):
        command = match.group(1)
        words = list(_words(match.group(2), variables))
        makes = command.startswith("kvkeep_") or command in (
            "add_library", "add_executable", "target_link_libraries")
        if makes and words and "$" not in words[0]:
            yield Target(words[0], path.rpartition("/")[0], _deps(command, words),
                         text.count("\n", 0, match.start(1)) + 1)


def _reached(graph, starts):
    reached, waiting = set(starts), list(starts)
    while waiting:
        for name in graph.get(waiting.pop(), ()):
            if name not in reached:
                reached.add(name)
                waiting.append(name)
    return reached


class Layers:
    def __init__(self, tree):
        self._homes = {path.rpartition("/")[0] for path in tree
                       if path.rpartition("/")[2] == "CMakeLists.txt"}
        self.targets = [target for path, text in tree.items()
                        if path.rpartition("/")[2] == "CMakeLists.txt"
                        for target in _targets_of(path, text)]
        self._folder_of, self._deps_of, of_folder = {}, {}, collections.defaultdict(set)
        for target in self.targets:
            home = self._folder_of.setdefault(target.name, target.folder)
            self._deps_of.setdefault(target.name, set()).update(target.deps)
            of_folder[home].add(target.name)
        # Folder -> {folder: the target whose DEPS say so}.
        self.arrows = collections.defaultdict(dict)
        for target in self.targets:
            home = self._folder_of[target.name]
            for dep in target.deps:
                theirs = self._folder_of.get(dep, home)
                if theirs != home:
                    self.arrows[home].setdefault(theirs, target)
        self._reach = {folder: {self._folder_of[name] for name in _reached(self._deps_of, names)
                                if name in self._folder_of}
                       for folder, names in of_folder.items()}

    def home(self, path):
        """Returns the folder whose CMakeLists.txt builds this file."""
        folder = path.rpartition("/")[0]
        while folder and folder not in self._homes:
            folder = folder.rpartition("/")[0]
        return folder

    def reach(self, folder):
        """Returns the folders of everything that this folder's targets link, directly or not, and
        itself."""
        return self._reach.get(folder, set()) | {folder}

    def circles(self):
        """Yields arrows that lead back to where they begin: folder, the next one, the target that
        names it."""
        for folder in sorted(self.arrows):
            for theirs, target in sorted(self.arrows[folder].items()):
                if folder in _reached(self.arrows, [theirs]):
                    yield folder, theirs, target
