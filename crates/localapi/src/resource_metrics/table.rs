//! What `kubectl get podmetrics` and `kubectl get nodemetrics` show: the columns of metrics-server.

use model::quantity::binary_text;
use serde_json::{Value, json};

use super::{Measured, cpu_text};

/// A Table with a row for each of these; the caller sets the objects of the rows.
pub(crate) fn table(measured: &[Measured]) -> Value {
    let column = |name: &str, format: &str, description: &str| json!({"name": name, "type": "string", "format": format, "description": description, "priority": 0});
    let row = |of: &Measured| {
        let name = of.object["metadata"]["name"].clone();
        json!({"cells": [name, cpu_text(of.cpu_nanocores), binary_text(of.memory_bytes.into()), of.window]})
    };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [
            column("Name", "name", "Name of the resource"),
            column("cpu", "quantity", ""),
            column("memory", "quantity", ""),
            column("Window", "duration", ""),
        ],
        "rows": measured.iter().map(row).collect::<Vec<_>>(),
    })
}
