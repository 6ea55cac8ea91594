"""Save IR before and after LLVM's optimiser, by llvmlite's new pass manager."""

from collections.abc import Mapping
from pathlib import Path

from llvmlite import binding

SPEED_LEVEL = 2


def optimised(text: str) -> str:
    """Return a module's text after the pipeline of -O2, for the baseline instruction set of this
    machine's architecture."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_default_triple().create_target_machine(opt=SPEED_LEVEL, codemodel="default")
    module = binding.parse_assembly(text, binding.create_context())
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    options = binding.create_pipeline_tuning_options(speed_level=SPEED_LEVEL)
    options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = True
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return str(module)


def save_both(modules: Mapping[str, str], directory: Path) -> None:
    """Write `directory`/NAME.before.ll and NAME.after.ll for each module."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in modules.items():
        (directory / f"{name}.before.ll").write_text(text)
        (directory / f"{name}.after.ll").write_text(optimised(text))
