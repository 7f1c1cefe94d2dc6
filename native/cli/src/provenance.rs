//! The machine, the program and the time of a result, which every JSON result has.

use serde::Serialize;
use serde_json::{Map, Value};
use std::process::Command;
use std::sync::{LazyLock, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs};
use wrinklefree::text::Date;
use wrinklefree_easy::machine;

/// Commit and target of the program.
static BUILD: OnceLock<[&str; 2]> = OnceLock::new();

/// Sets the commit and the target that the program is built from. They are the program's, so that a commit
/// compiles no library again.
pub fn set_build(commit: &'static str, target: &'static str) {
    BUILD.get_or_init(|| [commit, target]);
}

/// Returns the commit and the target of the program; `unknown` where it has set none.
fn build() -> [&'static str; 2] {
    BUILD.get().copied().unwrap_or(["unknown"; 2])
}

/// Returns the commit that the program is built from.
pub fn commit() -> &'static str {
    build()[0]
}

/// Fields of every record: `cpu`, `instruction_sets`, `version`, `commit` and `date` (UTC). The same in a
/// whole run.
pub fn fields() -> Map<String, Value> {
    static FIELDS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = since.map_or(0, |since| since.as_secs() as i64);
        let fields = [
            ("cpu", cpu()),
            ("instruction_sets", machine::available().join(" ")),
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("commit", commit().into()),
            ("date", Date::from_unix(seconds).to_string()),
        ];
        fields.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect()
    });
    FIELDS.clone()
}

/// Returns a result with these fields after its own, or an array of results that each have them.
///
/// # Errors
/// If the result is no JSON.
pub(crate) fn attached(result: &impl Serialize) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(result)?;
    let objects = match &mut value {
        Value::Array(results) => results.iter_mut(),
        one => std::slice::from_mut(one).iter_mut(),
    };
    for object in objects.filter_map(Value::as_object_mut) {
        object.append(&mut fields());
    }
    Ok(value)
}

/// The same in a line of text, for people who send their measurements.
pub fn line() -> String {
    let fields = fields();
    let of = |name: &str| fields[name].as_str().unwrap_or_default().to_owned();
    let [commit, target] = build();
    let program = format!("wf-run {} ({commit}, {target})", of("version"));
    format!("{}; {}; {program}; {}", of("cpu"), of("instruction_sets"), of("date"))
}

/// Name of the processor, or its architecture where the system does not say.
fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    // Of the machine itself where it has no firmware tables: the name of a board.
    let board = fs::read_to_string("/proc/device-tree/model").unwrap_or_default();
    cpu_name(&text, board.trim_matches(['\0', '\n', ' ']))
        .or_else(brand)
        .unwrap_or_else(|| env::consts::ARCH.into())
}

/// Reads the name from Linux' description of the processor. On ARM that has numbers only: of the maker, and
/// of each kind of core.
fn cpu_name(description: &str, board: &str) -> Option<String> {
    let values = |name: &str| {
        let mut values: Vec<&str> = Vec::new();
        for (key, value) in description.lines().filter_map(|line| line.split_once(':')) {
            if key.trim() == name && !values.contains(&value.trim()) {
                values.push(value.trim());
            }
        }
        values
    };
    if let Some(name) = values("model name").first() {
        return Some((*name).to_owned());
    }
    let (makers, cores) = (values("CPU implementer"), values("CPU part"));
    let numbers = (!cores.is_empty())
        .then(|| format!("implementer {}, part {}", makers.join(" "), cores.join(" ")));
    let parts = [Some(board.to_owned()).filter(|board| !board.is_empty()), numbers];
    let name = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    Some(name).filter(|name| !name.is_empty())
}

/// Name of the processor as macOS states it; no other system knows the key.
fn brand() -> Option<String> {
    let sysctl = Command::new("/usr/sbin/sysctl").args(["-n", "machdep.cpu.brand_string"]).output();
    let name = String::from_utf8(sysctl.ok()?.stdout).ok()?.trim().to_owned();
    Some(name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{cpu_name, line};

    #[test]
    fn arm_cores_are_named_by_their_numbers() {
        let x86 = "processor\t: 0\nmodel name\t: A CPU @ 3.2 GHz\nmodel name\t: A CPU @ 3.2 GHz\n";
        assert_eq!(cpu_name(x86, "").as_deref(), Some("A CPU @ 3.2 GHz"));
        let core = |part: &str| format!("CPU implementer\t: 0x41\nCPU part\t: {part}\n");
        let arm = [core("0xd05"), core("0xd05"), core("0xd0b")].concat();
        let found = cpu_name(&arm, "Board 5");
        assert_eq!(found.as_deref(), Some("Board 5, implementer 0x41, part 0xd05 0xd0b"));
        assert_eq!(cpu_name("", ""), None);
    }

    #[test]
    fn a_line_has_the_instruction_sets() {
        assert!(line().contains("; scalar"), "{}", line());
        assert!(line().contains(env!("CARGO_PKG_VERSION")), "{}", line());
    }
}
