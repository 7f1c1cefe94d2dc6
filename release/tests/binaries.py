"""Checks by its headers that a program or a library runs on the systems that it is published for.

    binaries.py FILE…

Linux: only libraries of glibc, up to the version 2.28, or none at all. Windows: only libraries of
Windows. macOS: only libraries of the system with the symbols that they have, macOS 11.0, and on Apple's
processors a valid signature. A universal file has both architectures. Python's symbols may be missing in
its modules.
"""

import hashlib
import re
import struct
import sys
from pathlib import Path

import lief
import ziglang

lief.logging.disable()

GLIBC = (2, 28)
LINUX = re.compile(r"(libc|libm|libdl|libpthread|librt|libgcc_s|ld-linux-x86-64|ld-linux-aarch64)\.so\.\d")
WINDOWS = {
    *("advapi32.dll", "bcrypt.dll", "bcryptprimitives.dll", "combase.dll", "gdi32.dll"),
    *("kernel32.dll", "kernelbase.dll", "msvcrt.dll", "ntdll.dll", "ole32.dll", "psapi.dll"),
    *("shell32.dll", "user32.dll", "userenv.dll", "ws2_32.dll", "python3.dll"),
}
MACOS = [11, 0, 0]
MACOS_LIBRARIES = {f"/usr/lib/{n}.dylib" for n in ("libSystem.B", "libcharset.1", "libiconv.2")}
SYSTEM = Path(ziglang.__file__).parent / "lib/libc/darwin/libSystem.tbd"
CODE_DIRECTORY, SHA256 = 0xFADE0C02, 2


def elf(path):
    binary = lief.ELF.parse(path)
    strange = [name for name in binary.libraries if not LINUX.fullmatch(name)]
    assert not strange, f"needs {strange}"
    names = [a.name for v in binary.symbols_version_requirement for a in v.get_auxiliary_symbols()]
    versions = [tuple(map(int, n[6:].split("."))) for n in names if re.match(r"GLIBC_\d", n)]
    newest = max(versions, default=())
    assert newest <= GLIBC, f"needs glibc {newest}"
    machine = binary.header.machine_type.name
    return f"{machine}, glibc {'.'.join(map(str, newest)) or 'not needed'}"


def pe(path):
    binary = lief.PE.parse(path)
    names = {library.name.lower() for library in binary.imports}
    strange = {n for n in names - WINDOWS if not n.startswith("api-ms-win-")}
    assert not strange, f"needs {strange}"
    return f"{binary.header.machine.name}, {', '.join(sorted(names))}"


def system_symbols():
    """Returns the symbols of macOS' libSystem, as the linker knows them."""
    return set(re.findall(r"[\w$.]+", SYSTEM.read_text(encoding="utf-8")))


def macho(path):
    parts = lief.MachO.parse(path)
    assert parts, "neither a program nor a library"
    data, known = Path(path).read_bytes(), system_symbols()
    found = sorted(macho_part(part, data, known) for part in parts)
    assert len(parts) == 1 or found == ["ARM64", "X86_64"], found
    return f"{', '.join(found)}, macOS {'.'.join(map(str, MACOS[:2]))}"


def macho_part(binary, data, known):
    name = binary.header.cpu_type.name
    oldest = binary.build_version.minos if binary.has_build_version else binary.version_min.version
    assert list(oldest) == MACOS, f"{name}: needs macOS {oldest}"
    libraries = [library.name for library in binary.libraries]
    own = [library.name for library in binary.commands if library.command.name == "ID_DYLIB"]
    strange = [n for n in libraries if n not in MACOS_LIBRARIES and n not in own]
    assert not strange, f"{name}: needs {strange}"
    module = binary.header.file_type.name != "EXECUTE"
    missing = [symbol.name for symbol in binary.imported_symbols if symbol.name not in known]
    python = ("_Py", "__Py") if module else ()
    missing = [m for m in missing if m != "dyld_stub_binder" and not m.startswith(python)]
    assert not missing, f"{name}: no system library has {missing}"
    assert binary.has_code_signature or name != "ARM64", "Apple's processors run signed programs alone"
    if binary.has_code_signature:
        signed(bytes(binary.code_signature.content), data[binary.fat_offset :])
    return name


def signed(signature, part):
    """Compares the hashes of a signature with the pages of the file."""
    _, _, count = struct.unpack_from(">III", signature)
    places = [struct.unpack_from(">II", signature, 12 + 8 * i)[1] for i in range(count)]
    place = next(p for p in places if struct.unpack_from(">I", signature, p)[0] == CODE_DIRECTORY)
    fields = struct.unpack_from(">IIIIIIIBBBB", signature, place + 8)
    hashes, pages, end, size, kind, page = fields[2], *fields[5:9], 1 << fields[10]
    assert kind == SHA256, f"hashes of kind {kind}"
    for i in range(pages):
        digest = hashlib.sha256(part[i * page : min((i + 1) * page, end)]).digest()
        start = place + hashes + i * size
        assert signature[start : start + size] == digest, f"the signature of page {i} is wrong"


def check(path):
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic == b"\x7fELF":
        return elf(path)
    return pe(path) if magic[:2] == b"MZ" else macho(path)


if __name__ == "__main__":
    assert sys.argv[1:], __doc__
    for path in sys.argv[1:]:
        try:
            print(f"{Path(path).name}: {check(path)}")
        except AssertionError as error:
            sys.exit(f"{path}: {error}")
