//! Configuration: one YAML file, checked at the edge.
