//! The table of conversions: a trait between a model type and its protobuf type, and macros whose rows name the fields.
//!
//! Each row destructures both sides completely, so a field that is added on one side does not compile until the row
//! names it.

use crate::model::Invalid;

/// A model type that is sent as the protobuf type `P`.
pub(in crate::rpc) trait Wire<P>: Sized {
    /// Converts this value to its protobuf type.
    fn to_wire(&self) -> P;

    /// Converts a protobuf value. The error names the field and its bound.
    fn from_wire(field: &'static str, wire: P) -> Result<Self, Invalid>;
}

impl<T: Wire<P>, P> Wire<Option<P>> for Option<T> {
    fn to_wire(&self) -> Option<P> {
        self.as_ref().map(T::to_wire)
    }

    fn from_wire(field: &'static str, wire: Option<P>) -> Result<Self, Invalid> {
        wire.map(|wire| T::from_wire(field, wire)).transpose()
    }
}

impl<T: Wire<P>, P> Wire<Vec<P>> for Vec<T> {
    fn to_wire(&self) -> Vec<P> {
        self.iter().map(T::to_wire).collect()
    }

    fn from_wire(field: &'static str, wire: Vec<P>) -> Result<Self, Invalid> {
        wire.into_iter().map(|wire| T::from_wire(field, wire)).collect()
    }
}

impl<T: Wire<P>, P> Wire<P> for Box<T> {
    fn to_wire(&self) -> P {
        T::to_wire(self)
    }

    fn from_wire(field: &'static str, wire: P) -> Result<Self, Invalid> {
        T::from_wire(field, wire).map(Self::new)
    }
}

/// Returns a part that must be set, or refuses its absence.
pub(in crate::rpc) fn required<T>(field: &str, part: Option<T>) -> Result<T, Invalid> {
    part.ok_or_else(|| Invalid::new(field, "must be set", "nothing"))
}

/// Converts a part that must be set.
pub(super) fn read_set<T: Wire<P>, P>(field: &'static str, wire: Option<P>) -> Result<T, Invalid> {
    T::from_wire(field, required(field, wire)?)
}

/// `Model: wire type, value => conversion to it, (field, wire) => conversion from it`.
macro_rules! wire_leaves {
    ($($model:ty: $wire:ty, $value:pat => $written:expr, ($field:pat, $read:pat) => $parsed:expr;)*) => { $(
        impl Wire<$wire> for $model {
            fn to_wire(&self) -> $wire {
                let $value = self;
                $written
            }

            fn from_wire($field: &'static str, $read: $wire) -> Result<Self, Invalid> {
                $parsed
            }
        }
    )* };
}

/// Conversions of a part that must be set.
macro_rules! must_be_set {
    ($($model:ty: $wire:ty),* $(,)?) => {
        wire_leaves! { $(
            $model: Option<$wire>, value => Some(value.to_wire()),
                (field, wire) => $crate::rpc::convert::table::read_set(field, wire);
        )* }
    };
}

/// `Model = Message { fields with the same name; wire name: model name }`. The part of a message must be set; with `||
/// default`, its absence is the model's default.
macro_rules! wire_messages {
    (@absent $model:ty: $wire:ty) => { must_be_set!($model: $wire); };
    (@absent $model:ty: $wire:ty, default) => {
        wire_leaves! {
            $model: Option<$wire>, value => Some(value.to_wire()),
                (field, wire) => wire.map_or_else(|| Ok(Self::default()), |wire| Wire::from_wire(field, wire));
        }
    };
    ($(
        $model:ident $(<$($of:ident),+>)? = $wire:ident { $($same:ident),* $(; $($from:ident: $to:ident),+)? } $(|| $absent:ident)?
    )*) => { $(
        wire_leaves! {
            $model $(<$($of),+>)?: pb::$wire, model => {
                let $model { $($same,)* $($($to,)+)? } = model;
                pb::$wire { $($same: Wire::to_wire($same),)* $($($from: Wire::to_wire($to),)+)? }
            }, (_, pb::$wire { $($same,)* $($($from,)+)? }) => Ok($model {
                $($same: Wire::from_wire(stringify!($same), $same)?,)*
                $($($to: Wire::from_wire(stringify!($from), $from)?,)+)?
            });
        }
        wire_messages!(@absent $model $(<$($of),+>)?: pb::$wire $(, $absent)?);
    )* };
}

/// `Model = module::Oneof { Variant, Variant(part), Variant { field }, Variant = Message { as above } }`. A variant
/// without fields is an empty message. `in Message.field` is a message that contains only the choice. A field after a
/// `+` is not in the message: the code that reads it adds it.
macro_rules! wire_oneof {
    (@to) => { pb::Empty {} };
    (@to ($value:ident)) => { Wire::to_wire($value) };
    (@to { $value:ident }) => { Wire::to_wire($value) };
    (@to = $wire:ident { $($same:ident),* $(; $($from:ident: $to:ident),+)? }) => {
        pb::$wire {
            $($same: Wire::to_wire($same),)*
            $($($from: Wire::to_wire($to),)+)?
        }
    };
    (@from $read:ident $model:ident $variant:ident) => {{ let pb::Empty {} = $read; $model::$variant }};
    (@from $read:ident $model:ident $variant:ident ($value:ident)) => {
        $model::$variant(Wire::from_wire(stringify!($value), $read)?)
    };
    (@from $read:ident $model:ident $variant:ident { $value:ident $(+ $added:ident)? }) => {
        $model::$variant { $value: Wire::from_wire(stringify!($value), $read)?, $($added: Default::default())? }
    };
    (@from $read:ident $model:ident $variant:ident
        = $wire:ident { $($same:ident),* $(; $($from:ident: $to:ident),+)? $(+ $added:ident)? }
    ) => {{
        let pb::$wire { $($same,)* $($($from,)+)? } = $read;
        $model::$variant {
            $($same: Wire::from_wire(stringify!($same), $same)?,)*
            $($($to: Wire::from_wire(stringify!($from), $from)?,)+)?
            $($added: Default::default(),)?
        }
    }};
    ($model:ident = $module:ident::$oneof:ident $(in $message:ident.$field:ident $(|| $absent:ident)?)? { $(
        $variant:ident $(($value:ident))? $({ $only:ident $(+ $lacks:ident)? })?
        $(= $wire:ident { $($same:ident),* $(; $($from:ident: $to:ident),+)? $(+ $added:ident)? })?
    ),* $(,)? }) => {
        wire_leaves! {
            $model: pb::$module::$oneof, choice => match choice { $(
                $model::$variant $(($value))? $({ $only $(, $lacks: _)? })?
                $({ $($same,)* $($($to,)+)? $($added: _)? })? => pb::$module::$oneof::$variant(wire_oneof!(
                    @to $(($value))? $({ $only })? $(= $wire { $($same),* $(; $($from: $to),+)? })?
                )),
            )* }, (_, choice) => Ok(match choice { $(
                pb::$module::$oneof::$variant(read) => wire_oneof!(
                    @from read $model $variant $(($value))? $({ $only $(+ $lacks)? })?
                    $(= $wire { $($same),* $(; $($from: $to),+)? $(+ $added)? })?
                ),
            )* });
        }
        must_be_set!($model: pb::$module::$oneof);
        $(
            wire_leaves! {
                $model: pb::$message, choice => pb::$message { $field: choice.to_wire() },
                    (field, pb::$message { $field }) => Wire::from_wire(field, $field);
            }
            wire_messages!(@absent $model: pb::$message $(, $absent)?);
        )?
    };
}

/// `Model { values }`: enums with the same values. The wire's 0 is refused, or is the value after `||`.
macro_rules! wire_enums {
    ($($model:ident { $($value:ident),* } $(|| $unspecified:ident)?)*) => { $(
        wire_leaves! {
            $model: i32, value => match value { $($model::$value => pb::$model::$value,)* }.into(),
                (field, number) => match known(field, number)? {
                    pb::$model::Unspecified => wire_enums!(@unspecified field $($model::$unspecified)?),
                    $(pb::$model::$value => Ok($model::$value),)*
                };
        }
        must_be_set!($model: i32);
    )* };
    (@unspecified $field:ident) => { Err(unknown($field, "unspecified")) };
    (@unspecified $field:ident $value:expr) => { Ok($value) };
}
