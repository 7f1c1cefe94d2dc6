//! A hostile chat template cannot hang, abort, or take much memory.

use crate::template::template;
use std::time::{Duration, Instant};

/// Expects rendering to fail within ten seconds, on the smallest stack of a thread.
fn fails_soon(source: &str) {
    let begin: String = source.chars().take(200).collect();
    let owned = source.to_owned();
    let started = Instant::now();
    let run = move || template(&owned, &[]).and_then(|t| t.render(&[], true));
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap();
    let result = thread.join().unwrap_or_else(|_| panic!("{begin}"));
    let took = started.elapsed();
    assert!(result.is_err(), "{begin}: {} bytes", result.unwrap().len());
    assert!(took < Duration::from_secs(10), "{begin}: {took:?}");
}

/// Expects rendering to end within ten seconds, with or without an error.
fn ends_soon(source: &str) {
    let begin: String = source.chars().take(200).collect();
    let owned = source.to_owned();
    let started = Instant::now();
    let run = move || template(&owned, &[]).and_then(|t| t.render(&[], true));
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap();
    let _ = thread.join().unwrap_or_else(|_| panic!("{begin}"));
    let took = started.elapsed();
    assert!(took < Duration::from_secs(10), "{begin}: {took:?}");
}

#[test]
fn one_call_cannot_multiply_its_input() {
    let calls = [
        "'a'|indent(99999999999999)",
        "'a'|indent(width=99999999999999)",
        "[1]|slice(3000000000)|length",
        "[1]|batch(99999999999,1)",
        "'%999999999d'|format(1)",
        "'%*d'|format(999999999, 1)",
        "'%.999999999f'|format(1.5)",
        "'{:999999999}'.format(1)",
        "'{:{}}'.format(1, 999999999)",
        "'x' * 100000000",
        "'x' * 10000 * 10000",
        "100000000 * 'x'",
        "([1] * 100000000)|length",
        "('x' * 1000000).replace('x', 'y' * 1000000)",
        "('x' * 1000000)|replace('', 'y' * 1000000)",
        "(range(90000)|list)|join('x' * 100000)",
        "('x' * 100000).join(range(90000))",
        "range(90000)|list|tojson(separators=('x' * 100000, 'y'))",
        "('a' * 10000000).strip('b' * 10000000 ~ 'a')",
        "range(10000000000)",
        "namespace(**5)",
        "unknown|pprint",
    ];
    for call in calls {
        fails_soon(&format!("{{{{ {call} }}}}"));
    }
}

#[test]
fn doubling_ends() {
    let bodies = [
        "{% set n.a = n.a ~ n.a %}",
        "{% set n.a = n.a + n.a %}",
        "{% set n.a = n.a * 2 %}",
        "{% set n.a = n.a|replace('a', n.a) %}",
        "{% set n.a = n.a.replace('a', n.a) %}",
        "{% set n.a = [n.a, n.a]|join %}",
        "{% set n.a = [n.a, n.a] %}",
        "{% set n.a = (n.a, n.a) %}",
        "{% set n.a = {'a': n.a, 'b': n.a} %}",
        "{% set n.a = dict(a=n.a, b=n.a) %}",
        "{% set n.a = n.a|string ~ n.a|tojson %}",
        "{% set n.a = '{0}{0}'.format(n.a) %}",
        "{% set n.a = '%s%s'|format(n.a, n.a) %}",
        "{% set n.a %}{{ n.a }}{{ n.a }}{% endset %}",
        "{% set n.a = f(n.a) %}",
        "{% set n.a = n.a|upper|lower|escape ~ n.a %}",
    ];
    for body in bodies {
        for first in ["'aaaa'", "[1, 2]"] {
            // Some of these make a harmless text of a list.
            let check = if first == "'aaaa'" { fails_soon } else { ends_soon };
            check(&format!(
                "{{% macro f(x) %}}{{{{ x }}}}{{{{ x }}}}{{% endmacro %}}{{% set n = namespace(a={first}) %}}\
                 {{% for i in range(90) %}}{body}{{% endfor %}}{{{{ n.a }}}}"
            ));
        }
    }
}

#[test]
fn work_on_a_long_text_is_charged() {
    let bodies = [
        "{% if s == t %}{% endif %}",
        "{% if 'b' in s %}{% endif %}",
        "{% if s < t < s %}{% endif %}",
        "{% if s[:-1] %}{% endif %}",
        "{% if s[7999999] %}{% endif %}",
        "{% if d[s] %}{% endif %}",
        "{% set x = {s: 1} %}",
        "{% if s|length %}{% endif %}",
        "{% if s is upper %}{% endif %}",
        "{% if s.startswith(t) %}{% endif %}",
        "{% if s|trim %}{% endif %}",
        "{% if s|int %}{% endif %}",
        "{% for c in s %}{% break %}{% endfor %}",
        "{% for c in s recursive %}{{ loop(s) }}{% endfor %}",
        "{% if l|list %}{% endif %}",
        "{% if l|sort %}{% endif %}",
        "{% if l == m %}{% endif %}",
        "{% if [l, l]|string %}{% endif %}",
        "{% if l|tojson %}{% endif %}",
        "{% if l|sum %}{% endif %}",
        "{% if s|dictsort %}{% endif %}",
    ];
    // The values alone are within the budget: without a body there is no error.
    let alone = "{% set s = 'a' * 8000000 %}{% set t = s ~ 'b' %}{% set l = range(9999)|list %}";
    assert_eq!(template(alone, &[]).unwrap().render(&[], true).unwrap(), "");
    for body in bodies {
        ends_soon(&format!(
            "{{% set s = 'a' * 8000000 %}}{{% set t = s ~ 'b' %}}{{% set d = {{}} %}}\
             {{% set l = range(9999)|list %}}{{% set m = range(9999)|list %}}\
             {{% for i in range(9999) %}}{body}{{% endfor %}}"
        ));
    }
    // Text between the tags.
    let text = "xxx\n".repeat(50_000);
    fails_soon(&format!(
        "{{% set s %}}{{% for i in range(9999) %}}{text}{{% endfor %}}{{% endset %}}"
    ));
}

#[test]
fn nesting_does_not_exhaust_the_stack() {
    for body in [
        "n.a[0:]",
        "n.a + [1]",
        "n.a * 1",
        "n.a|reverse",
        "n.a|map('upper')",
        "(n.a, )",
        "[n.a]",
        "{'a': n.a}",
        "namespace(a=n.a)",
        "n",
        "[n]",
        "f",
    ] {
        ends_soon(&format!(
            "{{% macro f() %}}{{% endmacro %}}{{% set n = namespace(a=[1]) %}}\
             {{% for i in range(9000) %}}{{% set n.a = {body} %}}{{% endfor %}}{{{{ n.a }}}}"
        ));
    }
    let cases = [
        ("-", "1", ""),
        ("not ", "1", ""),
        ("1~", "1", ""),
        ("1+", "1", ""),
        ("1 if 1 else ", "1", ""),
        ("1 and ", "1", ""),
        ("1**", "1", ""),
        ("x|d|", "d", ""),
        ("x is d is ", "d", ""),
        ("[", "1", "]"),
        ("(", "1", ")"),
        ("x[", "1", "]"),
        ("f(", "1", ")"),
        ("{1:", "1", "}"),
        ("x", ".a.a", ""),
        ("[1]*", "x", ""),
    ];
    for times in [100, 250, 590, 2000, 20_000, 200_000] {
        for (open, middle, close) in cases {
            ends_soon(&format!("{{{{ {}{middle}{} }}}}", open.repeat(times), close.repeat(times)));
        }
        ends_soon(&format!("{{{{ x{} }}}}", ".a".repeat(times)));
        ends_soon(&format!("{{{{ x{} }}}}", "[1]".repeat(times)));
        ends_soon(&format!("{{{{ x{} }}}}", "()".repeat(times)));
        ends_soon(&format!("{{% if 1 %}}{}{{% endif %}}", "{% elif 1 %}".repeat(times)));
        ends_soon(&"{% if 1 %}".repeat(times));
        let (open, close) = ("{% if 1 %}".repeat(times), "{% endif %}".repeat(times));
        ends_soon(&format!("{open}{close}"));
        ends_soon(&"{% for a in b %}".repeat(times));
        ends_soon(&"{% macro a() %}".repeat(times));
        ends_soon(&"\n".repeat(times));
        ends_soon(&"{{ 1 }}".repeat(times));
        ends_soon(&"{% raw %}".repeat(times));
        ends_soon(&"{#".repeat(times));
    }
}

#[test]
fn long_sources_and_tags_are_refused_by_number() {
    let says = |source: String, what: &str| {
        let error = template(&source, &[]).unwrap_err();
        assert_eq!(error.code(), "bad_chat_template");
        assert!(error.to_string().contains(what), "{error}");
    };
    says("x".repeat(300_000), "300000 bytes; at most 262144");
    says(format!("\n{{{{ {}1 }}}}", "1~".repeat(5000)), "on line 2 has more than 600 tokens");
    says("\n".repeat(100_000), "60000 lines");
    says(format!("{{% if 1 %}}{}", "{% elif 1 %}".repeat(300)), "200 `elif`s");
    says("{% block a %}{% endblock %}".into(), "`block a`");
}

#[test]
fn bounded_operations_still_work() {
    let renders = |source: &str, text: &str| {
        assert_eq!(template(source, &[]).unwrap().render(&[], true).unwrap(), text, "{source}");
    };
    renders("{{ 'x' * 3 * 2 }}{{ 2 * 3 }}{{ 2 * 1.5 }}{{ 2 ** 3 * 2 }}", "xxxxxx63.016");
    renders("{{ [1, 2][1:] + [3] }}{{ ([1] * 3)[0] }}{{ [1, 2, 3][::-1] }}", "[2, 3]1[3, 2, 1]");
    renders(
        "{{ 1 < 2 < 3 }}{{ 1 < 2 > 3 }}{{ 2 in [1, 2] }}{{ 'b' not in 'abc' }}",
        "TrueFalseTrueFalse",
    );
    renders("{% set a, b = (1, 2) %}{{ b ~ a }}{{ {'k': 'v'}['k'] }}{{ 'abc'[1] }}", "21vb");
    renders(
        "{% for k, v in {'a': 1, 'b': 2}|items %}{{ k }}{{ v }}{% else %}-{% endfor %}",
        "a1b2",
    );
    renders(
        "{% for x in [[1, [2]], [3]] recursive %}{{ loop(x) if x is sequence else x }}{% endfor %}",
        "123",
    );
    renders(
        "{% macro f(a, b=2) %}{{ a }}{{ b }}{{ caller() }}{% endmacro %}{% call f(1) %}c{% endcall %}",
        "12c",
    );
    renders(
        "{% set n = namespace(l=[]) %}{% for i in range(5) if i % 2 %}{% set n.l = n.l + [i] %}{% endfor %}{{ n.l }}",
        "[1, 3]",
    );
    renders(
        "{{ '%s-%03d' | format('a', 7) }}{{ '{}{:>4}'.format('b', 1) }}{{ 'a,b'.split(',') }}",
        "a-007b   1['a', 'b']",
    );
}
