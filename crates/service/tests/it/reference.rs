//! `docs/spec/service-api.md` is made of the OpenAPI document that the service serves.
//!
//! Where the page says something else, the test fails; this writes it again, to be read before it
//! is committed:
//!
//! `GODWIT_GOLDEN=write cargo test -p godwit-service --test it reference`

use std::{fmt::Write as _, fs, path::Path};

use serde_json::Value;

use crate::site::Site;

const HEAD: &str = "# The service's API

All that a program can ask `godwit-service`, by path, and the types of what it sends and gets. The
same is at `/api/v1/openapi.json` of each service (OpenAPI 3.1). [Transfer service](../service.md)
says how to get a token and what jobs are.

Each request has the header `Authorization: Bearer TOKEN`, but for those marked as open. Errors are
a `Problem` (RFC 9457, `application/problem+json`) with a stable `code`. Times are UTC, as RFC 3339
has them. Unknown fields of requests are errors; clients pass over unknown fields of answers.

The test `service/reference` makes this page of the code and compares; `GODWIT_GOLDEN=write cargo
test -p godwit-service --test it reference` writes it again.
";

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_the_api_is_made_of_its_document() {
    let site = Site::start(&[]).await;
    let url = format!("{}/api/v1/openapi.json", site.url);
    let document: Value = site
        .client
        .get(url)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let text = page(&document);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/spec/service-api.md");
    if std::env::var("GODWIT_GOLDEN").is_ok_and(|value| value == "write") {
        fs::write(&path, &text).unwrap();
        return;
    }
    let then = fs::read_to_string(&path).unwrap_or_default();
    let differing = text
        .lines()
        .zip(then.lines())
        .find(|(now, then)| now != then);
    assert!(
        text == then,
        "{} is not what the code says; to write it again: GODWIT_GOLDEN=write cargo test -p \
         godwit-service --test it reference\n{differing:#?}",
        path.display()
    );
}

#[test]
fn a_page_names_parameters_bodies_and_fields() {
    let document = serde_json::json!({
        "paths": {"/api/v1/x/{id}": {"put": {
            "summary": "Sets x", "description": "At once.\n\nOr later.", "security": [{}],
            "parameters": [{"name": "id", "in": "path", "required": true,
                "description": "Which", "schema": {"type": "string", "format": "uuid"}}],
            "requestBody": {"content": {"application/json":
                {"schema": {"$ref": "#/components/schemas/X"}}}},
            "responses": {"204": {"description": "Set"}, "default": {"description": "A problem"}},
        }}},
        "components": {"schemas": {
            "X": {"type": "object", "description": "An x.", "required": ["a"], "properties": {
                "a": {"type": "array", "items": {"$ref": "#/components/schemas/Y"}},
                "b": {"type": ["integer", "null"], "format": "int64", "description": "A | b"},
                "c": {"type": "object", "description": "As [`Z`] and [`W`]",
                    "properties": {"z": {"type": "string"}}},
            }},
            "Y": {"oneOf": [{"type": "string", "enum": ["p"], "description": "One."},
                {"type": "object", "properties": {"q": {"type": "string"}, "r":
                    {"type": "object", "properties": {"s": {"type": "string"}}}}}]},
            "Z": {"type": "object", "properties": {"z": {"type": "string"}}},
        }},
    });
    let text = page(&document);
    for line in [
        "### `PUT /api/v1/x/{id}`",
        "Sets x. Open. At once. Or later.",
        "- `id` in the path: string (uuid). Which",
        "- body: [`X`](#x)",
        "- 204: Set",
        "| `a` | array of [`Y`](#y) |  |",
        "| `b`, optional | integer (int64) or null | A \\| b |",
        "- `\"p\"`: One.",
        "- `q`: string, `r`: {`s`: string}",
        "| `c`, optional | [`Z`](#z) | As [`Z`](#z) and `W` |",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

fn page(document: &Value) -> String {
    let schemas = document["components"]["schemas"].clone();
    let mut document = document.clone();
    for paths_or_types in ["paths", "components"] {
        name(&mut document[paths_or_types], &schemas, 0);
    }
    let mut text = HEAD.to_owned();
    text += "\n## Requests\n";
    for (path, methods) in members(&document["paths"]) {
        for (method, operation) in members(methods) {
            request(&mut text, path, method, operation);
        }
    }
    text += "\n## Types\n";
    for (name, schema) in members(&document["components"]["schemas"]) {
        let _ = write!(text, "\n### {name}\n");
        let said = words(&schema["description"]);
        if !said.is_empty() {
            text.push('\n');
            put(&mut text, &said);
        }
        type_of(&mut text, schema);
    }
    text
}

/// Objects that are written out where they are used, and are a type of the document, become a
/// reference to it; so do links of the code to its types. `depth`: that of the types themselves is
/// 2, as in `schemas/X`.
fn name(value: &mut Value, schemas: &Value, depth: usize) {
    match value {
        Value::Object(fields) => {
            let properties = fields.get("properties");
            let is_it = |(_, schema): &(&str, &Value)| Some(&schema["properties"]) == properties;
            let known = members(schemas).find(is_it);
            if let (Some((known, _)), true, true) = (known, properties.is_some(), depth > 2) {
                let reference = format!("#/components/schemas/{known}").into();
                fields.retain(|name, _| name == "description");
                fields.insert("$ref".to_owned(), reference);
            }
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = linked(text, schemas);
            }
            fields
                .values_mut()
                .for_each(|value| name(value, schemas, depth + 1));
        }
        Value::Array(values) => {
            values
                .iter_mut()
                .for_each(|value| name(value, schemas, depth + 1));
        }
        _ => {}
    }
}

/// Text of the code, where [`X`] is a link.
fn linked(text: &str, schemas: &Value) -> String {
    let mut parts = text.split("[`");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("`]") {
            Some((of, rest)) if schemas[of].is_object() => {
                let _ = write!(out, "[`{of}`](#{}){rest}", of.to_lowercase());
            }
            Some((of, rest)) => {
                let _ = write!(out, "`{of}`{rest}");
            }
            None => {
                let _ = write!(out, "[`{part}");
            }
        }
    }
    out
}

fn request(text: &mut String, path: &str, method: &str, operation: &Value) {
    let _ = write!(text, "\n### `{} {path}`\n\n", method.to_uppercase());
    let is_open = operation["security"]
        .as_array()
        .is_some_and(|all| all.iter().all(|one| members(one).next().is_none()));
    let summary = words(&operation["summary"]);
    let open = if is_open { " Open." } else { "" };
    let rest = words(&operation["description"]);
    put(text, &format!("{summary}.{open} {rest}"));
    text.push('\n');
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let (name, place) = (word(&parameter["name"]), word(&parameter["in"]));
        let optional = match parameter["required"] == true {
            true => "",
            false => ", optional",
        };
        let (shape, said) = (
            shape(&parameter["schema"]),
            words(&parameter["description"]),
        );
        put(
            text,
            &format!("- `{name}` in the {place}{optional}: {shape}. {said}"),
        );
    }
    for (media, content) in members(&operation["requestBody"]["content"]) {
        put(
            text,
            &format!("- body{}: {}", of_media(media), shape(&content["schema"])),
        );
    }
    for (status, answer) in members(&operation["responses"]).filter(|(name, _)| *name != "default")
    {
        let mut line = format!("- {status}: {}", words(&answer["description"]));
        for (media, content) in members(&answer["content"]) {
            let _ = write!(line, "; {}{}", shape(&content["schema"]), of_media(media));
        }
        put(text, &line);
    }
}

fn of_media(media: &str) -> String {
    match media {
        "application/json" => String::new(),
        other => format!(" as `{other}`"),
    }
}

/// What a type is made of.
fn type_of(text: &mut String, schema: &Value) {
    let required = |name: &str| {
        let mut names = schema["required"].as_array().into_iter().flatten();
        names.any(|one| one == name)
    };
    if schema["properties"].is_object() {
        text.push_str("\n| Field | Type | What it is |\n|---|---|---|\n");
        for (name, field) in members(&schema["properties"]) {
            let optional = if required(name) { "" } else { ", optional" };
            let said = words(&field["description"]).replace('|', "\\|");
            let shape = shape(field).replace('|', "\\|");
            let _ = writeln!(text, "| `{name}`{optional} | {shape} | {said} |");
        }
        return;
    }
    let choices = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
    text.push('\n');
    match choices {
        Some(choices) => choices.iter().for_each(|choice| {
            let said = words(&choice["description"]);
            let said = if said.is_empty() {
                said
            } else {
                format!(": {said}")
            };
            match choice["properties"].is_object() {
                true => {
                    let fields = members(&choice["properties"]);
                    let fields = fields.map(|(name, field)| format!("`{name}`: {}", shape(field)));
                    put(
                        text,
                        &format!("- {}{said}", fields.collect::<Vec<_>>().join(", ")),
                    );
                }
                false => put(text, &format!("- {}{said}", shape(choice))),
            }
        }),
        None => put(text, &shape(schema)),
    }
}

/// A type in a few words.
fn shape(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or(name);
        return format!("[`{name}`](#{})", name.to_lowercase());
    }
    let all = |values: &Value, between: &str| {
        let shapes = values.as_array().into_iter().flatten().map(shape);
        shapes.collect::<Vec<_>>().join(between)
    };
    for (key, between) in [("oneOf", " or "), ("anyOf", " or "), ("allOf", " and ")] {
        if schema[key].is_array() {
            return all(&schema[key], between);
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        let values = values.iter().map(|value| format!("`{value}`"));
        return values.collect::<Vec<_>>().join(", ");
    }
    let names: Vec<&str> = match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => vec!["any JSON"],
    };
    let names = names.into_iter().map(|name| match name {
        "array" if schema["prefixItems"].is_array() => {
            format!("array of {}", all(&schema["prefixItems"], " and "))
        }
        "array" => format!("array of {}", shape(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("object of {}", shape(&schema["additionalProperties"]))
        }
        "object" if schema["properties"].is_object() => {
            let fields = members(&schema["properties"]);
            let fields = fields.map(|(name, field)| format!("`{name}`: {}", shape(field)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        "null" => name.to_owned(),
        name => match schema["format"].as_str() {
            Some(format) => format!("{name} ({format})"),
            None => name.to_owned(),
        },
    });
    names.collect::<Vec<_>>().join(" or ")
}

/// A paragraph or an item of a list, in lines of at most 100 columns.
fn put(text: &mut String, paragraph: &str) {
    let mut columns = 0;
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if columns > 0 && columns + 1 + length > 100 {
            text.push('\n');
            let indent = if paragraph.starts_with("- ") {
                "  "
            } else {
                ""
            };
            text.push_str(indent);
            columns = indent.len();
        } else if columns > 0 {
            text.push(' ');
            columns += 1;
        }
        text.push_str(word);
        columns += length;
    }
    text.push('\n');
}

fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let members = value.as_object().into_iter().flatten();
    members.map(|(name, value)| (name.as_str(), value))
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// One line of it.
fn words(value: &Value) -> String {
    word(value).split_whitespace().collect::<Vec<_>>().join(" ")
}
