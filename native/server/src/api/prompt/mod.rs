//! From the messages and texts of a body to the prompt of a request.

pub mod conversation;
pub mod history;
pub mod infill;
pub mod next_question;
pub mod plain_text;
