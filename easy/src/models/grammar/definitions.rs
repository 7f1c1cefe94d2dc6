//! Definitions of a tool's schema, for formats that write each parameter apart.

use serde_json::{Map, Value, json};
use wrinklefree::chat::tools::pointer;

/// Keywords whose values are data, not schemas.
const DATA: [&str; 5] = ["const", "default", "enum", "example", "examples"];
/// Keywords whose value is an object of schemas by names.
const MAPS: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];
/// Keywords that hold definitions at the top of a schema.
const SECTIONS: [&str; 2] = ["$defs", "definitions"];

/// Copies the definitions of one schema to its parts.
pub struct Definitions<'a> {
    root: &'a Value,
    /// Bytes that may still be copied: each parameter gets copies of its own.
    left: &'a mut usize,
}

impl<'a> Definitions<'a> {
    /// Prepares copies of at most `left` bytes, which are counted down.
    pub fn new(root: &'a Value, left: &'a mut usize) -> Self {
        Self { root, left }
    }

    /// Returns a part of the schema as a schema of its own, with the definitions that it reaches.
    ///
    /// # Errors
    /// If the copies have too many bytes.
    pub fn whole(&mut self, part: &Value) -> Result<Value, String> {
        let mut whole = part.clone();
        let Some(fields) = whole.as_object_mut() else { return Ok(whole) };
        // References are pointers from the root, so those of the part are copied from there, too.
        SECTIONS.iter().for_each(|section| _ = fields.shift_remove(*section));
        let (mut waiting, mut copies) = (Vec::new(), Map::new());
        references(&mut whole, &mut |reference| waiting.extend(target(reference)));
        while let Some((section, name, pointer)) = waiting.pop() {
            let copied = copies.get(section).is_some_and(|copied| copied.get(&name).is_some());
            let Some(definition) = self.root.pointer(&pointer).filter(|_| !copied) else {
                continue;
            };
            let mut definition = self.copied(definition)?;
            references(&mut definition, &mut |reference| waiting.extend(target(reference)));
            copies.entry(section).or_insert_with(|| json!({}))[name] = definition;
        }
        if let Some(fields) = whole.as_object_mut() {
            fields.extend(copies);
        }
        Ok(whole)
    }

    fn copied(&mut self, definition: &Value) -> Result<Value, String> {
        let mut copy = definition.clone();
        if let (true, Some(fields)) = (std::ptr::eq(definition, self.root), copy.as_object_mut()) {
            SECTIONS.iter().for_each(|section| _ = fields.shift_remove(*section));
        }
        let size = copy.to_string().len();
        *self.left = self.left.checked_sub(size).ok_or(
            "its parameters share definitions that are too large: each parameter needs a copy of \
             those that it refers to",
        )?;
        Ok(copy)
    }
}

/// Points a reference to the place of its copy. Returns that place, and the pointer to the original;
/// `None` for a reference to another document.
fn target(reference: &mut String) -> Option<(&'static str, String, String)> {
    let pointer = pointer(reference)?;
    let kept = SECTIONS.into_iter().find_map(|section| {
        let name = pointer.strip_prefix('/')?.strip_prefix(section)?.strip_prefix('/')?;
        (!name.contains('/')).then(|| (section, name.replace("~1", "/").replace("~0", "~")))
    });
    let (section, name) = kept.unwrap_or_else(|| ("$defs", format!("#{pointer}")));
    *reference = format!("#/{section}/{}", name.replace('~', "~0").replace('/', "~1"));
    Some((section, name, pointer))
}

/// Calls `visit` for all references inside a schema.
fn references(schema: &mut Value, visit: &mut dyn FnMut(&mut String)) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("$ref", Value::String(reference)) => visit(reference),
                    (key, Value::Object(named)) if MAPS.contains(&key) => {
                        named.iter_mut().for_each(|(_, schema)| references(schema, visit));
                    }
                    (key, value) if !DATA.contains(&key) => references(value, visit),
                    _ => {}
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|schema| references(schema, visit)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(root: &Value, part: &str) -> Value {
        let mut left = 1000;
        let mut definitions = Definitions::new(root, &mut left);
        definitions.whole(root.pointer(part).expect("a part")).expect("small")
    }

    #[test]
    fn a_part_takes_what_it_reaches() {
        let node = json!({"properties": {"next": {"$ref": "#/definitions/Node"}, "c": {"$ref": "#/$defs/C"}}});
        let root = json!({
            "properties": {
                "a": {"anyOf": [{"$ref": "#/definitions/Node"}, {"type": "null"}]},
                "b": {"type": "string", "enum": ["x"], "default": {"$ref": "#/$defs/C"}},
                "d": {"items": {"$ref": "#/properties/b"}},
                "e": {"$ref": "#/%24defs/a~1b"},
                "f": {"$ref": "https://example.com/x", "properties": {"$ref": {"$ref": "#none"}}},
                "g": {"$ref": "#"},
            },
            "$defs": {"C": {"enum": [1]}, "a/b": {"type": "null"}, "unused": {"type": "null"}},
            "definitions": {"Node": node},
        });
        let want = json!({"anyOf": [{"$ref": "#/definitions/Node"}, {"type": "null"}],
            "definitions": {"Node": node}, "$defs": {"C": {"enum": [1]}}});
        assert_eq!(whole(&root, "/properties/a"), want);
        for same in ["/properties/b", "/properties/f"] {
            assert_eq!(whole(&root, same), *root.pointer(same).unwrap());
        }
        let b = root["properties"]["b"].clone();
        let want =
            json!({"items": {"$ref": "#/$defs/#~1properties~1b"}, "$defs": {"#/properties/b": b}});
        assert_eq!(whole(&root, "/properties/d"), want);
        let want = json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "null"}}});
        assert_eq!(whole(&root, "/properties/e"), want);
        let recursive = whole(&root, "/properties/g");
        let copy = &recursive["$defs"]["#"];
        assert_eq!(copy["properties"]["g"], json!({"$ref": "#/$defs/#"}));
        assert_eq!(copy.get("definitions"), None);
    }

    #[test]
    fn copies_are_bounded() {
        let text = "x".repeat(400);
        let root =
            json!({"properties": {"a": {"$ref": "#/$defs/C"}}, "$defs": {"C": {"const": text}}});
        let mut left = 1000;
        let mut copy = || Definitions::new(&root, &mut left).whole(&root["properties"]["a"]);
        assert!(copy().is_ok() && copy().is_ok() && copy().is_err());
    }
}
