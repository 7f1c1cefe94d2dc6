//! No template makes minijinja panic: each of these did, or is next to one that did. Results are
//! Python's.

#[path = "../fuzz/template_grammar.rs"]
mod template_grammar;

use crate::template::template;
use serde_json::json;
use wrinklefree::text::RenderOptions;

/// Renders a template for a conversation of one message, or says that it fails.
fn render(source: &str) -> Option<String> {
    let messages = json!([{"role": "user", "content": "hey"}]);
    let template = template(source, &[]).unwrap_or_else(|e| panic!("{source}: {e}"));
    let rendered = template.render_with(&messages, &RenderOptions::default());
    rendered.inspect_err(|e| println!("{source}: {e}")).ok()
}

#[test]
fn slices_are_those_of_python() {
    let cases = [
        ("{{ [][::-1] }}", "[]"),
        ("{{ messages[1:][::-1] }}", "[]"),
        ("{{ ''[::-1] }}|{{ 'héy'[::-1] }}", "|yéh"),
        ("{{ ()[::-1] }}{{ (1, 2)[::-1] }}{{ (1, 2, 3)[:1] }}", "()(2, 1)(1,)"),
        ("{{ 'abcde'[0:2:-1] }}|{{ 'abcde'[3:0:-1] }}|{{ 'abcde'[9:1:-2] }}", "|dcb|ec"),
        ("{{ [1, 2, 3][-9::-1] }}{{ [1, 2, 3][5:-9:-1] }}", "[][3, 2, 1]"),
        ("{{ [1, 2][::-9223372036854775808] }}{{ [1, 2][::9223372036854775807] }}", "[2][1]"),
        ("{{ [1, 2][-9223372036854775808:9223372036854775807] }}", "[1, 2]"),
        ("{{ [1, 2][true:] }}{{ [1, 2]['a':] }}", "[2]"),
        ("{{ none[1:] }}{{ messages[0][1:] }}", ""),
    ];
    for (source, text) in cases {
        assert_eq!(render(source).as_deref(), Some(text), "{source}");
    }
    assert_eq!(render("{{ [1][::0] }}"), None);
    assert_eq!(render("{{ nothing[::-1] }}"), None);
}

#[test]
fn jumps_close_the_blocks_that_they_leave() {
    let each = |body: &str| {
        format!("{{% for x in [1, 2, 3] %}}{{{{ x }}}}{body}{{{{ x }}}};{{% endfor %}}end")
    };
    let cases = [
        ("{% with a = x %}{% break %}{% endwith %}", "1end"),
        ("{% with a = x %}{% continue %}{% endwith %}", "123end"),
        (
            "{% with %}{% with %}{% if x == 2 %}{% break %}{% endif %}{% endwith %}{% endwith %}",
            "11;2end",
        ),
        ("{% set y %}a{% break %}{% endset %}", "1end"),
        (
            "{% set y %}a{% if x < 3 %}{% continue %}{% endif %}{% endset %}",
            "123", /* then "3;" */
        ),
        ("{% filter upper %}a{% break %}{% endfilter %}", "1end"),
        ("{% autoescape true %}{% continue %}{% endautoescape %}", "123end"),
        ("{% for y in [1] %}{% with %}{% break %}{% endwith %}{% endfor %}", "11;22;33;end"),
    ];
    for (body, text) in cases {
        let rendered = render(&each(body)).unwrap_or_else(|| panic!("{body} fails"));
        assert!(rendered.starts_with(text), "{body}: {rendered}");
        assert!(rendered.ends_with("end"), "{body}: {rendered}");
    }
}

#[test]
fn what_minijinja_divides_or_unwraps_is_checked() {
    let failing = [
        "{% for x in [1] %}{{ loop.cycle() }}{% endfor %}",
        "{% for x in [1] %}{{ loop.cycle(*[]) }}{% endfor %}",
        "{% for x in [1] %}{{ loop.changed() }}{% endfor %}",
        // A loop that keeps itself would never be freed.
        "{% for x in [1] %}{{ loop.changed(loop) }}{% endfor %}",
        "{% for x in [1] %}{{ loop.changed([loop]) }}{% endfor %}",
        "{% set n = namespace() %}{% for x in [1] %}{% set n.x = loop %}{% endfor %}",
        "{{ 'x' | int(base=1) }}",
        "{{ 'x' | int(base=99) }}",
        "{{ 1 is divisibleby(0) }}",
        "{{ range(0, 10, 0) }}",
        "{{ [1] | batch(0) }}",
        "{{ [1] | slice(0) }}",
        "{{ [1] | slice(9223372036854775807) }}",
        "{{ [1] | batch(9223372036854775807, 'x') }}",
        "{{ 'x'.center(9223372036854775807) }}",
        "{{ 'x' | indent(9223372036854775807) }}",
        "{{ 'a\tb'.expandtabs(9223372036854775807) }}",
        "{{ 1 % 0 }}",
        "{{ 1.0 % 0.0 }}",
        "{{ 170141183460469231731687303715884105727 + 1 }}",
        "{{ 'x'.split('') }}",
        "{{ [1, 2].append(3) }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ];
    for source in failing {
        assert_eq!(render(source), None, "{source}");
    }
    let fine = [
        "{% for x in [1, 2] %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x) }}{% endfor %}",
        "{% for x in [1] recursive %}{{ loop([]) }}{% endfor %}",
        "{% for x in [[1], [2]] recursive %}{% with %}{{ loop(x) if x is not number }}{% endwith %}{% endfor %}",
        "{{ -9223372036854775808 // -1 }}{{ -9223372036854775808 % -1 }}",
        "{{ [] | first }}{{ [] | last }}{{ [] | min }}{{ '' | first }}{{ '' | last }}",
        "{{ '%s' % (1,) }}{{ '' % () }}{{ '%c' % (65,) }}",
        "{{ 'x' * -1 }}{{ [1] * -1 }}{{ 'x' * 0 }}",
        "{{ [3, 'a', none, 1.5, true, [1], {'a': 1}, 2] | sort }}",
        "{{ '' | indent(-1) }}{{ 'x'.center(-1) }}{{ 'x'.zfill(-1) }}",
        "{{ 1 | round(-2147483648) }}{{ 1.5 | round(2147483647) }}",
    ];
    for source in fine {
        // The sandbox of `transformers` may refuse some; what counts is that there is an answer.
        let _ = render(source);
    }
}

#[test]
fn macros_call_themselves_60_times() {
    let source = "{% macro m(n) %}{% for a in [1] %}{% for b in [1] %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endfor %}{% endfor %}{% endmacro %}{{ m(60) }}";
    let run = || render(source);
    // Browsers give a module 1 MiB, the server its blocking tasks 2 MiB.
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(run).expect("a thread");
    let text = thread.join().expect("no overflow").expect("renders");
    assert!(text.starts_with("605958") && text.ends_with("210"), "{text}");
    let deeper = source.replace("m(60)", "m(7000)");
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    let thread = thread.spawn(move || render(&deeper)).expect("a thread");
    assert_eq!(thread.join().expect("no overflow"), None);
}

/// The fuzzer's templates, from a seed. `TEMPLATES=1000000` makes as many, `SEED=1` others.
#[test]
fn random_templates_do_not_panic() {
    let count = std::env::var("TEMPLATES").map_or(3_000, |count| count.parse().expect("a number"));
    let seed = std::env::var("SEED").map_or(0, |seed| seed.parse().expect("a number"));
    let mut state = 0x9E37_79B9_7F4A_7C15_u64.wrapping_add(seed);
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let messages =
        json!([{"role": "user", "content": "a b"}, {"role": "assistant", "content": "é"}]);
    let mut rendered = 0;
    for _ in 0..count {
        let bytes: Vec<u8> = (0..120).map(|_| random()).collect();
        let source = template_grammar::Choices(&bytes).template(3);
        let result = template(&source, &[])
            .and_then(|template| template.render_with(&messages, &RenderOptions::default()));
        match result {
            Ok(_) => rendered += 1,
            Err(error) => assert!(!error.to_string().contains(" panic: "), "{source}: {error}"),
        }
    }
    assert!(rendered * 20 > count, "only {rendered} of {count} rendered");
}
