#!/usr/bin/env python3
"""Is a .metal file Metal Shading Language? Answers on any machine with clang 19, without Apple's compiler.

    msl_check.py FILE...                 each file has to pass, as Metal 3.1 and with Metal 4's tensor operations
    msl_check.py --bad FILE...           each file has to fail, with the message that its first line names:
                                         // expect: text

clang's OpenCL C++ front end stands in for MSL's (src/kernels/shim/check gives Apple's names): address spaces, no doubles,
no virtual functions, function pointers, exceptions, new, thread_local. rules.py reads the rest off clang's syntax tree.
What it cannot tell is listed in docs/metal.md. Exit code 77: no clang 19 here.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

import rules

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODES = ([], ["-DLILY_TENSOR_OPS"])
FLAGS = [
    "--target=amdgcn-amd-amdhsa", "-nogpulib", "-x", "cl", "-cl-std=clc++2021", "-cl-no-stdinc", "-nostdinc",
    "-Xclang", "-cl-ext=-all,+__opencl_c_generic_address_space,+__opencl_c_program_scope_global_variables",
    "-isystem", str(ROOT / "src/kernels/shim/check"), "-I", str(ROOT / "src"),
    "-Wall", "-Werror", "-Wno-unused", "-Wno-null-dereference", "-Wconversion", "-Wno-sign-conversion",
    "-Wno-implicit-int-conversion", "-Wno-implicit-int-float-conversion", "-fsyntax-only",
]  # yapf: disable


def find_clang(name):
    for candidate in [name] if name else ["clang-19", "clang-20", "clang-21", "clang-22", "clang"]:
        path = shutil.which(candidate)
        if not path:
            continue
        version = subprocess.run([path, "-dumpversion"], capture_output=True, text=True).stdout
        if version and int(version.split(".")[0]) >= 19:
            return path
    return None


def complaints(clang, path, mode):
    """What is wrong with the file: the front end's errors, or else the rules'."""
    front_end = subprocess.run([clang, *FLAGS, *mode, str(path)], capture_output=True, text=True)
    if front_end.returncode != 0:
        return [line for line in front_end.stderr.splitlines() if "error:" in line]
    tree = subprocess.run([clang, *FLAGS, *mode, "-w", "-Xclang", "-ast-dump=json", str(path)],
                          capture_output=True, check=True)  # yapf: disable
    return rules.check(json.loads(tree.stdout), outside=str(ROOT / "src/kernels/shim"))


def expect_pass(clang, path):
    for mode in MODES:
        found = complaints(clang, path, mode)
        if found:
            print(f"{path.name} {' '.join(mode)}:")
            print("".join(f"  {line}\n" for line in found[:8]), end="")
            return False
    return True


def expect_failure(clang, path):
    wanted = path.read_text().splitlines()[0].removeprefix("// expect: ")
    found = complaints(clang, path, [])
    caught = any(wanted in line for line in found)
    print(f"{path.name}: {'caught' if caught else 'MISSED: ' + wanted}")
    if not caught:
        print("".join(f"  {line}\n" for line in found), end="")
    return caught


def main():
    parser = argparse.ArgumentParser(description="Checks Metal Shading Language without Apple's compiler.")
    parser.add_argument("--clang", help="clang 19 or later; default: the first on the PATH")
    parser.add_argument("--bad", action="store_true", help="the files have to fail as their first line says")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    clang = find_clang(arguments.clang)
    if not clang:
        print("clang 19 or later is needed (Debian: clang-19)")
        return 1 if os.environ.get("CI") else 77
    check = expect_failure if arguments.bad else expect_pass
    results = [check(clang, path) for path in arguments.files]
    print(f"{sum(results)} of {len(results)} {'caught' if arguments.bad else 'pass'}")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
