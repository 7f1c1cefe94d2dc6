//! The machine, the program and the time of a measurement, which every record has.

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

/// Name of the processor, or its architecture where the system does not say.
fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or(env::consts::ARCH, |(_, name)| name.trim()).to_owned()
}
