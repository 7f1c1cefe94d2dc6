//! Grammars: what they hold, what they refuse and name, what is left out for best effort, and their
//! limits.
#![cfg(all(feature = "grammar", feature = "default-model"))]

use serde_json::{Value, json};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use wrinklefree::decode::{Constraint, Next};
use wrinklefree_easy::machine;
use wrinklefree_easy::models::grammar::{Grammar, Grammars, Vocabulary, gbnf_to_lark, validate};
use wrinklefree_easy::models::{Loaded, OpenOptions};

struct Compiler {
    loaded: Loaded,
    grammars: Grammars,
}

/// The compiler for the embedded model.
fn compiler() -> &'static Compiler {
    static COMPILER: OnceLock<Compiler> = OnceLock::new();
    COMPILER.get_or_init(|| {
        let runtime = machine::all_cores().expect("threads");
        let loaded = Loaded::open(&OpenOptions::default(), &runtime, &mut ()).expect("loads");
        let (vocab, eos) = (loaded.model.spec().vocab_size, &loaded.defaults.eos);
        let grammars = Grammars::new(loaded.tokenizer().expect("has one"), vocab, eos);
        Compiler { grammars: grammars.expect("made"), loaded }
    })
}

fn strict(schema: &Value) -> Result<Box<dyn Constraint>, String> {
    let compiled = compiler().grammars.compile(Grammar::JsonSchema(schema.clone()))?;
    assert!(compiled.warnings.is_empty(), "{schema}: {:?}", compiled.warnings);
    Ok(compiled.constraint)
}

/// Returns true if a grammar accepts `text` as a whole.
fn accepts(mut constraint: Box<dyn Constraint>, text: &str) -> bool {
    let Loaded { defaults, tokenizer, .. } = &compiler().loaded;
    let ids = tokenizer.as_ref().expect("has one").encode(text, false).expect("text");
    for token in ids.iter().chain(&defaults.eos[..1]) {
        match constraint.next() {
            Next::Tokens(set) if set[*token as usize / 32] >> (token % 32) & 1 == 1 => {
                constraint.accept(*token);
            }
            Next::End => return defaults.eos.contains(token),
            _ => return false,
        }
    }
    constraint.next() == Next::End
}

/// Features that llguidance does not know, with values: grammars hold them as a whole.
#[test]
fn features_that_other_keywords_express_are_held() {
    let object = |more: Value| {
        let mut schema = json!({"type": "object", "additionalProperties": false,
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}});
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    let schemas = [
        object(json!({"dependentRequired": {"a": ["b"]}})),
        object(json!({"dependencies": {"a": ["b"]}})),
        object(json!({"dependencies": {"a": {"properties": {"b": {"maximum": 5}}}}})),
        object(json!({"dependentSchemas": {"b": {"required": ["a"]}}})),
        object(json!({"not": {"required": ["a"]}})),
        object(json!({"not": {"required": ["a", "b"]}})),
        object(json!({"not": {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}})),
        object(json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]})),
        json!({"type": "object", "unevaluatedProperties": false,
            "properties": {"a": {"type": "integer"}}}),
        json!({"type": "object", "propertyNames": {"pattern": "^[ab]$"}}),
        json!({"not": {"type": ["object", "array"]}}),
        json!({"type": "string", "format": "a-format-that-nobody-knows"}),
        json!({"type": "array", "uniqueItems": false, "items": {"type": "integer"}}),
        json!({"type": "integer", "if": {"minimum": 5}}),
        json!({"type": "integer", "deprecated": true, "title": "A number", "examples": [7]}),
    ];
    let values = [
        json!({}),
        json!({"a": 1}),
        json!({"b": 1}),
        json!({"a": 1, "b": 2}),
        json!({"a": 1, "b": 7}),
        json!({"c": 1}),
        json!(3),
        json!("x"),
        json!([1, 1]),
        json!(null),
    ];
    for schema in schemas {
        let constraint = strict(&schema).unwrap_or_else(|e| panic!("{schema}: {e}"));
        let mut valid = 0;
        for value in &values {
            // The form that grammars have: spaces after `:` and `,`.
            let text = value.to_string().replace(':', ": ").replace(',', ", ");
            let want = validate(&schema, &text).valid;
            assert_eq!(Some(accepts(constraint.clone(), &text)), want, "{value} of {schema}");
            valid += usize::from(want == Some(true));
        }
        assert!((1..values.len()).contains(&valid), "{schema}");
    }
}

/// Features that no grammar holds: refused with their place, or left out and validated afterwards.
#[test]
fn features_that_no_grammar_holds_are_named_or_left_out() {
    let cases = [
        ("uniqueItems", json!({"type": "array", "uniqueItems": true}), "[1, 1]"),
        ("contains", json!({"type": "array", "contains": {"type": "string"}}), "[1]"),
        ("not", json!({"type": "integer", "not": {"const": 3}}), "3"),
        ("if", json!({"type": "integer", "if": {"minimum": 5}, "then": {"maximum": 7}}), "9"),
        (
            "propertyNames",
            json!({"type": "object", "propertyNames": {"maxLength": 1}}),
            "{\"xy\": 1}",
        ),
        (
            "unevaluatedProperties",
            json!({"type": "object", "allOf": [{"properties": {"a": true}}], "unevaluatedProperties": false}),
            "{\"b\": 1}",
        ),
        ("oneOf", json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "3"),
        ("pattern", json!({"type": "string", "pattern": "(?=a)b"}), "\"c\""),
        ("multipleOf", json!({"type": "integer", "multipleOf": 99_999_989}), "3"),
        (
            "patternProperties",
            json!({"type": "object", "patternProperties": {"a": {"type": "integer"}, "b": {"minimum": 5}}}),
            "{\"b\": 1}",
        ),
        ("$ref", json!({"type": "integer", "allOf": [{"$ref": "https://example.com/x"}]}), "3"),
    ];
    for (feature, schema, wrong) in cases {
        let nested = json!({"type": "object", "properties": {"p": schema}, "required": ["p"]});
        let error = strict(&nested).expect_err(feature);
        let place = format!("`{feature}` at `#/properties/p");
        assert!(error.contains(&place), "{feature}: {error}");
        let best = compiler().grammars.compile_best_effort(&nested);
        let (compiled, left_out) = best.unwrap_or_else(|e| panic!("{feature}: {e}"));
        assert!(left_out.iter().any(|part| part.starts_with(&place)), "{feature}: {left_out:?}");
        let text = format!("{{\"p\": {wrong}}}");
        assert!(accepts(compiled.constraint, &text), "{feature}: {text}");
        let report = validate(&nested, &text);
        assert_ne!(report.valid, Some(true), "{feature}: {report:?}");
        assert!(!report.errors.is_empty());
    }
    let huge: Vec<String> = (0..30_000).map(|i| format!("value {i}")).collect();
    let huge = json!({"type": "string", "enum": huge});
    let error = strict(&huge).expect_err("too large");
    assert!(error.contains("131072"), "{error}");
    let (compiled, left_out) = compiler().grammars.compile_best_effort(&huge).expect("a string");
    assert_eq!(left_out, ["all but the type at `#`"]);
    assert!(accepts(compiled.constraint, "\"value 7\""));
    assert_eq!(validate(&huge, "\"value 7\"").valid, Some(true));
    assert_eq!(validate(&huge, "\"value\"").valid, Some(false));
    assert_eq!(validate(&json!({"$ref": "#"}), "1").valid, None);
    assert!(strict(&json!("no schema")).is_err());
    assert!(compiler().grammars.compile_best_effort(&json!("no schema")).is_err());
}

/// Small grammars whose lexers or parsers are huge: the compiler gives up after bounded work.
#[test]
fn compiling_has_limits() {
    let any_of = vec![json!(true); 12_000];
    let properties: serde_json::Map<String, Value> =
        (0..1500).map(|i| (format!("p{i}"), json!({"const": i}))).collect();
    let and = "start: A\nA: /(a|b|c|d)*a(a|b|c|d){12}/ & /(a|b|c|d)*b(a|b|c|d){13}/ & \
               /(a|b|c|d)*c(a|b|c|d){14}/ & ~/.*abcd.*/\n";
    let grammars = [
        Grammar::JsonSchema(json!({"type": "integer", "multipleOf": 99_999_989})),
        Grammar::JsonSchema(json!({"type": "number", "multipleOf": 0.000_99})),
        Grammar::JsonSchema(json!({"type": "object", "properties": properties, "anyOf": any_of})),
        Grammar::Lark(and.into()),
        Grammar::Regex("(\\w|é)?".repeat(12_000)),
    ];
    let small = serde_json::from_value(json!({"size": 300, "special": [[7, "<end>"]], "eos": [7]}));
    let small: Vocabulary = small.expect("parses");
    let checks = Grammars::for_checks(&small).expect("made");
    for grammar in grammars {
        let text = format!("{:.60}", format!("{grammar:?}"));
        for compiler in [&compiler().grammars, &checks] {
            let begin = Instant::now();
            let refused = compiler.compile(grammar.clone()).map(|compiled| compiled.warnings);
            let time = begin.elapsed();
            assert!(time < Duration::from_secs(20), "{text}: {time:?}");
            assert!(refused.is_err() || text.contains("0.00099"), "{text}: {refused:?}");
        }
    }
    // The check knows control tokens.
    assert!(checks.compile(Grammar::Lark("start: \"a\" <end>\n".into())).is_ok());
    assert!(checks.compile(Grammar::Lark("start: \"a\" <other>\n".into())).is_err());
}

/// One slow compile does not make others wait.
#[test]
fn compiles_run_side_by_side() {
    let slow = || Grammar::Regex("(\\w|é)?".repeat(12_000));
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let begin = Instant::now();
            let _ = compiler().grammars.compile(slow());
            begin.elapsed()
        });
        let begin = Instant::now();
        let mut quick = 0;
        while !slow.is_finished() {
            compiler().grammars.compile(Grammar::json_object()).expect("compiles");
            quick += 1;
        }
        assert!(quick > 3, "{quick} in {:?}", begin.elapsed());
    });
}

/// A step is bounded, however ambiguous the grammar: it ends with an error instead.
#[test]
fn steps_have_limits() {
    let lark = "start: s \"z\"\ns: s s | s s s | /[a-z]/ | /[a-z][a-z]/ | \"\"\n";
    let compiled = compiler().grammars.compile(Grammar::Lark(lark.into())).expect("compiles");
    let (mut constraint, mut slowest) = (compiled.constraint, Duration::ZERO);
    for step in 0..400_u32 {
        let begin = Instant::now();
        let Next::Tokens(set) = constraint.next() else { break };
        slowest = slowest.max(begin.elapsed());
        let tokens =
            (0..set.len() as u32 * 32).filter(|t| set[*t as usize / 32] >> (t % 32) & 1 == 1);
        let tokens: Vec<u32> = tokens.collect();
        constraint.accept(tokens[(step as usize * 7919) % tokens.len()]);
    }
    println!("the slowest step took {slowest:?}");
    assert!(slowest < Duration::from_secs(20), "{slowest:?}");
}

/// Polling does not wait for a step, and gives the same tokens as waiting.
#[test]
fn slow_steps_are_computed_elsewhere() {
    let regex = Grammar::Regex("(.*[a-z]{20}.*)+".into());
    let mut polled = compiler().grammars.compile(regex).expect("compiles").constraint;
    let mut waited = polled.clone();
    let tokenizer = compiler().loaded.tokenizer.as_ref().expect("has one");
    let (mut early, mut longest) = (0, Duration::ZERO);
    for token in tokenizer.encode(&"the quick brown fox ".repeat(4), false).expect("text") {
        let next = loop {
            let (begin, mut budget) = (Instant::now(), Duration::ZERO);
            let next = polled.poll(&mut budget);
            longest = longest.max(begin.elapsed());
            match next {
                Some(next) => break next,
                None => early += 1,
            }
            // It waits for the step in progress.
            let _ = polled.clone();
        };
        assert_eq!(next, waited.next());
        polled.accept(token);
        waited.accept(token);
    }
    println!("{early} calls came early, and the longest took {longest:?}");
    assert!(early > 0 && longest < Duration::from_millis(500), "{early}, {longest:?}");
}

/// The JSON grammar of llama.cpp's manual.
const GBNF_JSON: &str = r##"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"##;

#[test]
fn grammars_of_llama_cpp_are_held() {
    let calculator = "root ::= (expr \"=\" ws term \"\\n\")+\nexpr ::= term ([-+*/] term)*\n\
        term ::= ident | num | \"(\" ws expr \")\" ws\nident ::= [a-z] [a-z0-9_]* ws\n\
        num ::= [0-9]+ ws\nws ::= [ \\t\\n]*\n";
    let list = "root ::= \"1. \" item \"\\n\" (\"2. \" item \"\\n\")?\nitem ::= [^\\n]{1,20}";
    let overlapping = "root ::= (\"ab\" | \"a\" \"bc\") \"d\"";
    let cases = [
        (GBNF_JSON, "{\"a\": [1, -2.5e3, {\"b\\n\": null}], \"\u{e9}\": true}", true),
        (GBNF_JSON, "{}", true),
        (GBNF_JSON, "{\"a\": 01x}", false),
        (GBNF_JSON, "[1]", false),
        (calculator, "x1+(2*y)=3\n", true),
        (calculator, "x1+(2*y=3\n", false),
        (list, "1. eggs\n2. milk & \"bread\"\n", true),
        (list, "1. eggs\n2. \n", false),
        (overlapping, "abd", true),
        (overlapping, "abcd", true),
        (overlapping, "acd", false),
    ];
    for (gbnf, text, want) in cases {
        let lark = gbnf_to_lark(gbnf).expect("converts");
        let compiled = compiler().grammars.compile(Grammar::Lark(lark.clone()));
        let constraint = compiled.unwrap_or_else(|e| panic!("{e}\n{lark}")).constraint;
        assert_eq!(accepts(constraint, text), want, "{text:?} of {lark}");
    }
}

/// Schemas and grammars of hostile shape, at random: each is compiled or refused, in bounded time and on a
/// thread with a small stack.
#[test]
fn hostile_shapes_end() {
    let shapes = (0..8).map(|seed| (seed, hostile_schema(seed, 40)));
    for (seed, schema) in shapes {
        let begin = Instant::now();
        let result = compiler().grammars.compile(Grammar::JsonSchema(schema.clone()));
        let size = schema.to_string().len();
        assert!(begin.elapsed() < Duration::from_secs(20), "{seed}, {size}: {:?}", begin.elapsed());
        drop(result);
        if seed % 4 == 0 {
            let _ = compiler().grammars.compile_best_effort(&schema);
        }
        let _ = validate(&schema, "{\"a\": [1, {\"b\": null}]}");
    }
    let links: String = (0..9000).map(|i| format!("a{i}::=a{}\n", i + 1)).collect();
    let signs = "?+*".repeat(20_000);
    for gbnf in [
        format!("root ::= \"a\"{signs}"),
        format!("root ::= ([a-z]{signs} \"x\"{signs})+ r{signs}\nr ::= .{signs}"),
        format!("root ::= a0\n{links}a9000::=\"x\"\n"),
        format!("root ::= {}\"a\"{}", "(".repeat(64), ")?".repeat(64)),
    ] {
        if let Ok(lark) = gbnf_to_lark(&gbnf) {
            let _ = compiler().grammars.compile(Grammar::Lark(lark));
        }
    }
    for lark in [
        format!("start: {}\"a\"{}", "(".repeat(60_000), ")".repeat(60_000)),
        format!("start: {}\"a\"", "~".repeat(120_000)),
        format!("start: {}", "f{".repeat(60_000)),
        format!("start: %json {}", "[".repeat(120_000)),
        format!("start: \"a\"{}", "?".repeat(100_000)),
    ] {
        assert!(compiler().grammars.compile(Grammar::Lark(lark)).is_err());
    }
    let deep = (0..600).fold(json!({}), |inner, _| json!({"items": inner}));
    let refused = compiler().grammars.compile(Grammar::JsonSchema(deep.clone()));
    assert!(refused.expect_err("deep").contains("nested"));
    assert!(compiler().grammars.compile_best_effort(&deep).is_err());
    assert_eq!(validate(&deep, "[]").valid, None);
}

/// Returns a schema of about `size` schemas whose shape a seed decides: deep, wide, chained by references,
/// and with options in options.
fn hostile_schema(seed: u64, size: usize) -> Value {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let kinds = ["null", "boolean", "number", "string", "array", "object"];
    let mut schema = json!({"type": kinds[random(6)]});
    let mut definitions = serde_json::Map::new();
    for step in 0..size {
        let other = json!({"type": kinds[random(6)]});
        schema = match random(9) {
            0 => json!({"oneOf": [{"not": schema}, other, {"type": "null"}, {"type": "array"}]}),
            1 => json!({"anyOf": [schema, schema, other]}),
            2 => {
                json!({"allOf": [{"anyOf": [schema, other]}, {"anyOf": [other, {"not": schema}]}]})
            }
            3 => json!({"not": {"anyOf": [schema, other]}}),
            4 => json!({"if": schema, "then": other, "else": {"not": schema}}),
            5 => json!({"type": "object", "properties": {"a": schema, "b": schema},
                "dependentSchemas": {"a": other}}),
            6 => json!({"type": "array", "prefixItems": vec![schema; 3], "contains": other}),
            7 => {
                json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": schema}})
            }
            _ => {
                definitions.insert(format!("d{step}"), schema);
                json!({"$ref": format!("#/$defs/d{step}")})
            }
        };
        // What was built is behind a reference before it grows without bound.
        if schema.to_string().len() > 3000 {
            definitions.insert(format!("e{step}"), schema);
            schema = json!({"anyOf": [{"$ref": format!("#/$defs/e{step}")}, other]});
        }
    }
    schema["$defs"] = definitions.into();
    schema
}
