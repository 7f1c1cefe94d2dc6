//! The machine, the program and the time of a result, which every JSON result has.

use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs};
use wrinklefree::text::Date;

/// Fields of every record: `cpu`, `version`, `commit` and `date` (UTC). The same in a whole run.
pub fn fields() -> Map<String, Value> {
    static FIELDS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = since.map_or(0, |since| since.as_secs() as i64);
        let fields = [
            ("cpu", cpu()),
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("commit", env!("BUILT_COMMIT").into()),
            ("date", Date::from_unix(seconds).to_string()),
        ];
        fields.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect()
    });
    FIELDS.clone()
}

/// Returns a result with these fields behind its own, or an array of results that each have them.
///
/// # Errors
/// If the result is no JSON.
pub fn attached(result: &impl Serialize) -> serde_json::Result<Value> {
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

/// Name of the processor, or its architecture where the system does not say.
fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or(env::consts::ARCH, |(_, name)| name.trim()).to_owned()
}
