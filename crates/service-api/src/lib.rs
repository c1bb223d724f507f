//! What the service says.
