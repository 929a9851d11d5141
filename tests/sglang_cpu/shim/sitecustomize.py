"""Let the released SGLang wheel start on a machine without a GPU; inert unless ``SGLANG_USE_CPU_ENGINE=1``.

Python imports ``sitecustomize`` at start-up from the first place on ``PYTHONPATH``, in SGLang's child processes too, so
no file of SGLang is patched. What a GPU-less machine lacks, and what is supplied instead:

* **torchvision operators.** With a CPU build of torch the wheel's CUDA-linked operators do not load, and importing
  torchvision fails while it looks up the schema of ``torchvision::nms``. The two schemas are declared just before that
  import. None of them is ever executed. A CUDA build of torch loads the real ones and is left alone.
* **triton.** SGLang defines triton kernels at import and launches none on the CPU. When triton is not installed, a
  module tree answers whose decorators hand back the function they are given.
* **sgl_kernel.** A stub package beside this file.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ClassVar


class TorchvisionSchemas(MetaPathFinder):
    """Declares torchvision's operator schemas once, when torchvision is first imported; finds no module itself."""

    def __init__(self) -> None:
        self._library: object | None = None
        self._visited = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Declare the schemas when torchvision is asked for; the real finders then find it."""
        if fullname == "torchvision" and not self._visited:
            self._visited = True
            self._declare()
        return None

    def _declare(self) -> None:
        import torch

        if torch.version.cuda is not None:
            return
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        # The schemas live as long as the library object does.
        self._library = library


class HollowModule(ModuleType):
    """A module (and decorator, and namespace) in which every name exists and nothing can be computed."""

    __path__: ClassVar[list[str]] = []
    __version__ = "3.7.1"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        # Capitalised names are used as base classes and in isinstance, so they have to be classes.
        value: Any = (
            type(name, (), {"__init__": _accept}) if name[:1].isupper() else HollowModule(f"{self.__name__}.{name}")
        )
        setattr(self, name, value)
        return value

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Serve as ``@jit`` and as ``@jit(...)``: hand back the decorated function untouched."""
        if len(args) == 1 and callable(args[0]) and not options:
            return args[0]
        return _identity

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class HollowTriton(MetaPathFinder, Loader):
    """Finds ``triton`` and its submodules. Asked last, so that an installed triton always wins."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Claim ``triton`` and everything below it."""
        if fullname.partition(".")[0] != "triton":
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make the module complete; there is no code to run."""
        module = HollowModule(spec.name)
        helpers = _HELPERS.get(spec.name, {})
        for name, value in helpers.items():
            setattr(module, name, value)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: the module was complete when it was created."""


def _accept(self: object, *args: Any, **options: Any) -> None:
    """``__init__`` of a hollow class: takes anything."""


def _identity(value: Any) -> Any:
    return value


def _ceiling_divide(value: int, divisor: int) -> int:
    return -(value // -divisor)


def _next_power_of_2(value: int) -> int:
    return 1 << (value - 1).bit_length() if value > 0 else 1


# What SGLang evaluates while it imports: two arithmetic helpers, and two names used as types without a capital.
_HELPERS: dict[str, dict[str, Callable[..., Any]]] = {
    "triton": {"cdiv": _ceiling_divide, "next_power_of_2": _next_power_of_2},
    "triton.language": {
        "constexpr": type("constexpr", (), {"__init__": _accept}),
        "dtype": type("dtype", (), {"__init__": _accept}),
    },
}


def install() -> None:
    """Put both finders on the import path: the schemas first, the stand-in for triton last."""
    sys.meta_path.insert(0, TorchvisionSchemas())
    sys.meta_path.append(HollowTriton())


if os.environ.get("SGLANG_USE_CPU_ENGINE") == "1":
    install()
