//! Every grant has a fencing token, larger than every earlier one of that name. (Promise 2.)

use super::Invariant;
use crate::checker::Rule;

pub(super) const THIS: Invariant = Invariant {
    name: "tokens grow",
    sentence: "Every grant has a fencing token, larger than every earlier one of that name.",
    broken: |evidence| evidence.rules(&[Rule::TokensGrow]),
};
