"""MSL's rules that clang's OpenCL C++ front end lets by, read off its syntax tree (-ast-dump=json).

The stub <metal_stdlib> marks kernels, SHARED variables, and a kernel's buffers and builtins with annotations.
"""


class Checker:

    def __init__(self, outside):
        self.outside = outside  # files under this folder are the stub's own
        self.file, self.line = "", 0
        self.complaints = []
        self.calls = {}  # function id -> (name, place, ids that its body refers to)

    def say(self, what):
        if not self.file.startswith(self.outside):
            self.complaints.append(f"{self.file}:{self.line}: {what}")

    def move_to(self, node):
        """clang gives a file or a line only where it changes."""
        for place in (node.get("loc") or {}, (node.get("range") or {}).get("begin") or {}):
            for part in (place, place.get("spellingLoc") or {}, place.get("expansionLoc") or {}):
                self.file = part.get("file", self.file)
                self.line = part.get("line", self.line)

    def walk(self, node, function=None, in_kernel=False, implicit=False):
        if "kind" not in node:
            return
        self.move_to(node)
        kind, children = node["kind"], node.get("inner") or []
        implicit = implicit or node.get("isImplicit", False)
        if kind in ("FunctionDecl", "CXXMethodDecl", "CXXConstructorDecl"):
            function = node["id"]
            self.calls.setdefault(function, (node.get("name"), f"{self.file}:{self.line}", set()))
            in_kernel = "kernel" in (name for name, _ in annotations(node))
            if in_kernel:
                self.kernel(node, children)
        if not implicit:
            self.declaration(node, kind, function, in_kernel)
        if function and kind in ("DeclRefExpr", "MemberExpr"):
            referred = node.get("referencedDecl", {}).get("id") or node.get("referencedMemberDecl")
            self.calls[function][2].add(referred)
        for child in children:
            self.walk(child, function, in_kernel, implicit)

    def declaration(self, node, kind, function, in_kernel):
        name, kind_of = node.get("name"), (node.get("type") or {}).get("qualType", "")
        if kind in ("ParmVarDecl", "VarDecl", "FieldDecl") and "__generic" in kind_of:
            self.say(f"'{name}': a pointer or reference needs an address space")
        if kind == "VarDecl":
            shared = "shared" in (label for label, _ in annotations(node))
            if shared and not in_kernel:
                self.say(f"'{name}': SHARED stands in the kernel itself")
            elif function and node.get("storageClass") == "static" and "__constant" not in kind_of:
                self.say(f"'{name}': no static locals")
            elif not function and name and "__constant" not in kind_of and not node.get("constexpr"):
                self.say(f"'{name}': a global must be constant")
        if kind == "GotoStmt":
            self.say("no goto")
        if kind == "LambdaExpr":
            self.say("no lambdas")
        if kind.endswith("Decl") and any(word in kind_of for word in ("long long", "__int128")):
            self.say(f"'{name}': no {kind_of}")

    def kernel(self, node, children):
        """Buffers are numbered 0, 1, 2, ... in order, and builtins follow them: launches count on it."""
        numbers, builtins = [], 0
        if node.get("type", {}).get("qualType", "").split(" (")[0] != "void":
            self.say(f"kernel '{node.get('name')}' does not return void")
        for parameter in (child for child in children if child["kind"] == "ParmVarDecl"):
            self.move_to(parameter)
            name, kind_of = parameter.get("name"), parameter["type"]["qualType"]
            labels = annotations(parameter)
            if not labels:
                self.say(f"kernel parameter '{name}' has no attribute")
            for label, number in labels:
                if label == "builtin":
                    builtins += 1
                    continue
                if number in numbers:
                    self.say(f"buffer {number} is given twice")
                elif builtins or number != len(numbers):
                    self.say(f"'{name}': buffers are numbered in order and stand before the builtins")
                numbers.append(number)
                if "__global" not in kind_of and "__constant" not in kind_of:
                    self.say(f"'{name}': a buffer is in device or constant")

    def recursion(self):
        done = set()

        def visit(function, path):
            if function in path:
                name, place, _ = self.calls[function]
                self.complaints.append(f"{place}: no recursion: '{name}'")
                return
            if function in done or function not in self.calls:
                return
            done.add(function)
            for callee in self.calls[function][2]:
                visit(callee, path | {function})

        for function in list(self.calls):
            visit(function, frozenset())


MARKS = ("buffer", "builtin", "kernel", "shared")


def annotations(node):
    """[(mark, buffer index or None)] of a declaration."""
    found = []
    for child in node.get("inner") or []:
        if child["kind"] == "AnnotateAttr":
            numbers = [int(value["value"]) for value in child.get("inner") or []]
            found.append((MARKS[numbers[0]], numbers[1] if len(numbers) > 1 else None))
    return found


def check(tree, outside):
    checker = Checker(outside)
    checker.walk(tree)
    checker.recursion()
    return list(dict.fromkeys(checker.complaints))
