//! Instruction sets on the command line: their names, and why one runs.

use super::exit::usage;
use clap::builder::PossibleValuesParser;
use wrinklefree::kernel::{Isa, Kernels};
use wrinklefree_easy::machine;

/// Returns why a set runs: it is the default, or `WF_ISA` names it.
pub fn why(isa: Isa) -> &'static str {
    if isa == Kernels::best().isa() { "the widest set of this machine" } else { "named by WF_ISA" }
}

/// Parses the name of an instruction set that programs can have, or `all`.
pub fn name_parser() -> PossibleValuesParser {
    PossibleValuesParser::new(["all"].into_iter().chain(machine::native()))
}

/// Returns the kernels of these instruction sets, the narrowest first; those of all sets of this machine for
/// `all`.
///
/// # Errors
/// If this machine lacks one.
pub fn named(names: &[String]) -> anyhow::Result<Vec<Kernels>> {
    let here = machine::available();
    if let Some(name) = names.iter().find(|name| *name != "all" && !here.contains(&name.as_str())) {
        return Err(usage(format!("--isa {name}: this machine has {}", here.join(", "))));
    }
    let asked = |isa: Isa| names.iter().any(|name| name == "all" || name == isa.name());
    Ok(Kernels::all().filter(|kernels| asked(kernels.isa())).collect())
}
