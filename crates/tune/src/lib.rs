//! Tuners as pure values: observation in, decision out.
