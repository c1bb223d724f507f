//! Credentials of users for endpoints: what they are, and how they lie in the database.

pub mod sealing;
