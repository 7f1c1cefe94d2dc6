//! Makes templates out of bytes: slices, loops, macros, methods, filters, tests and operators.

/// Bytes that decide between alternatives; 0 when they are used up.
pub struct Choices<'a>(pub &'a [u8]);

const ATOMS: &[&str] = &[
    "messages",
    "nothing",
    "none",
    "true",
    "''",
    "'héy'",
    "'a b\\nc'",
    "[]",
    "[1, 'b', none]",
    "()",
    "(1, 2)",
    "{}",
    "{'a': 1, 'items': [2]}",
    "0",
    "1",
    "-1",
    "2.5",
    "9223372036854775807",
    "x",
    "ns",
    "loop",
    "loop.index",
    "range(3)",
    "m",
    "caller",
    "'x'|safe",
    "-9223372036854775808",
    "1e300",
];
const BOUNDS: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "2",
    "-3",
    "9",
    "none",
    "x",
    "true",
    "9223372036854775807",
    "-9223372036854775808",
];
const OPERATORS: &[&str] =
    &["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or"];
const METHODS: &[&str] = &[
    "split",
    "rsplit",
    "strip",
    "replace",
    "find",
    "rfind",
    "index",
    "count",
    "join",
    "format",
    "center",
    "ljust",
    "zfill",
    "expandtabs",
    "splitlines",
    "partition",
    "title",
    "startswith",
    "endswith",
    "get",
    "items",
    "keys",
    "values",
    "copy",
    "upper",
    "cycle",
    "changed",
    "removeprefix",
    "isdigit",
    "append",
];
const FILTERS: &[&str] = &[
    "length",
    "first",
    "last",
    "list",
    "reverse",
    "sort",
    "unique",
    "dictsort",
    "batch",
    "slice",
    "groupby",
    "join",
    "indent",
    "truncate",
    "tojson",
    "int",
    "float",
    "round",
    "abs",
    "default",
    "map",
    "select",
    "reject",
    "selectattr",
    "sum",
    "min",
    "max",
    "trim",
    "upper",
    "title",
    "replace",
    "format",
    "center",
    "string",
    "escape",
    "safe",
    "items",
    "wordcount",
    "attr",
    "rejectattr",
    "capitalize",
];
const TESTS: &[&str] = &[
    "defined",
    "none",
    "iterable",
    "sequence",
    "mapping",
    "string",
    "number",
    "odd",
    "even",
    "divisibleby",
    "in",
    "eq",
    "lt",
    "sameas",
    "lower",
    "callable",
    "true",
    "escaped",
];

impl Choices<'_> {
    fn next(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }

    fn of<'b>(&mut self, list: &[&'b str]) -> &'b str {
        list[self.next() % list.len()]
    }

    fn arguments(&mut self, depth: usize) -> String {
        const NAMED: &[&str] = &[
            "",
            "attribute=",
            "width=",
            "first=",
            "reverse=",
            "indent=",
            "base=",
            "d=",
            "*",
            "**",
        ];
        let count = self.next() % 4;
        let arguments = (0..count).map(|_| {
            let name = if self.next().is_multiple_of(4) { self.of(NAMED) } else { "" };
            format!("{name}{}", self.expression(depth))
        });
        arguments.collect::<Vec<_>>().join(", ")
    }

    /// An expression.
    pub fn expression(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.of(ATOMS).into();
        }
        let depth = depth - 1;
        match self.next() % 12 {
            0 | 1 => self.of(ATOMS).into(),
            2 | 3 => {
                let value = self.expression(depth);
                let bounds = [self.of(BOUNDS), self.of(BOUNDS), self.of(BOUNDS)];
                format!("({value})[{}]", bounds.join(":"))
            }
            4 => format!("({})[{}]", self.expression(depth), self.expression(depth)),
            5 => {
                let (a, operator, b) =
                    (self.expression(depth), self.of(OPERATORS), self.expression(depth));
                format!("({a}) {operator} ({b})")
            }
            6 => format!(
                "({}).{}({})",
                self.expression(depth),
                self.of(METHODS),
                self.arguments(depth)
            ),
            7 | 8 => {
                format!(
                    "({})|{}({})",
                    self.expression(depth),
                    self.of(FILTERS),
                    self.arguments(depth)
                )
            }
            9 => format!(
                "({}) is {}({})",
                self.expression(depth),
                self.of(TESTS),
                self.arguments(depth)
            ),
            10 => format!("m({})", self.arguments(depth)),
            _ => format!(
                "{} if {} else {}",
                self.expression(0),
                self.expression(0),
                self.expression(depth)
            ),
        }
    }

    /// A template.
    pub fn template(&mut self, depth: usize) -> String {
        let mut out = String::new();
        for _ in 0..1 + self.next() % 3 {
            out += &self.statement(depth);
        }
        out
    }

    fn statement(&mut self, depth: usize) -> String {
        if depth == 0 {
            return format!("{{{{ {} }}}}", self.expression(2));
        }
        let depth = depth - 1;
        match self.next() % 14 {
            0..=3 => format!("{{{{ {} }}}}", self.expression(3)),
            4 | 5 => {
                let recursive = if self.next().is_multiple_of(3) { " recursive" } else { "" };
                let (items, body) = (self.expression(2), self.template(depth));
                format!("{{% for x in {items}{recursive} %}}{body}{{% else %}}e{{% endfor %}}")
            }
            6 => "{% break %}".into(),
            7 => "{% continue %}".into(),
            8 => format!(
                "{{% with x = {} %}}{}{{% endwith %}}",
                self.expression(2),
                self.template(depth)
            ),
            9 => format!("{{% set x %}}{}{{% endset %}}", self.template(depth)),
            10 => format!("{{% macro m(x, y=1) %}}{}{{% endmacro %}}", self.template(depth)),
            11 => format!("{{% if {} %}}{}{{% endif %}}", self.expression(2), self.template(depth)),
            12 => format!("{{% filter upper %}}{}{{% endfilter %}}", self.template(depth)),
            _ => {
                format!("{{% set ns = namespace(a=1) %}}{{% set ns.a = {} %}}", self.expression(2))
            }
        }
    }
}
