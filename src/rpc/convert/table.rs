//! The table of conversions: a trait between a model type and its form on the wire, and macros whose rows name the fields.
//!
//! Each row takes both sides apart whole, so a field that one side gains does not compile before the row has it.

use super::scalars::required;
use crate::model::Invalid;

/// A model type that goes over the wire as `P`.
pub(in crate::rpc) trait Wire<P>: Sized {
    /// This value as it is sent.
    fn to_wire(&self) -> P;

    /// The value that was sent. Refused with the name of the field and its bound.
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

/// Reads a part that must be set.
pub(super) fn read_set<T: Wire<P>, P>(field: &'static str, wire: Option<P>) -> Result<T, Invalid> {
    T::from_wire(field, required(field, wire)?)
}

/// A part of a message that must be set.
macro_rules! must_be_set {
    ($($model:ty: $wire:ty),* $(,)?) => { $(
        impl Wire<Option<$wire>> for $model {
            fn to_wire(&self) -> Option<$wire> {
                Some(self.to_wire())
            }

            fn from_wire(field: &'static str, wire: Option<$wire>) -> Result<Self, Invalid> {
                $crate::rpc::convert::table::read_set(field, wire)
            }
        }
    )* };
}

/// The conversions of the standard library, for code that has a whole message; the text names it where it is not set.
macro_rules! wire_whole {
    ($($model:ty: $wire:ty, $field:literal;)*) => { $(
        impl From<&$model> for $wire {
            fn from(model: &$model) -> Self {
                Wire::to_wire(model)
            }
        }

        impl TryFrom<$wire> for $model {
            type Error = Invalid;
            fn try_from(wire: $wire) -> Result<Self, Invalid> {
                Wire::from_wire($field, wire)
            }
        }
    )* };
}

/// `Model = Message { fields of the same name; wire name: model name }`, and after a `+` what the message lacks and its
/// reader adds.
macro_rules! wire_messages {
    ($(
        $model:ident = $wire:ident { $($same:ident),* $(; $($from:ident: $to:ident),+)? } $(+ $added:ident)?
    )*) => { $(
        impl Wire<pb::$wire> for $model {
            fn to_wire(&self) -> pb::$wire {
                let $model { $($same,)* $($($to,)+)? $($added: _)? } = self;
                pb::$wire { $($same: Wire::to_wire($same),)* $($($from: Wire::to_wire($to),)+)? }
            }

            fn from_wire(_: &'static str, wire: pb::$wire) -> Result<Self, Invalid> {
                let pb::$wire { $($same,)* $($($from,)+)? } = wire;
                Ok($model {
                    $($same: Wire::from_wire(stringify!($same), $same)?,)*
                    $($($to: Wire::from_wire(stringify!($from), $from)?,)+)?
                    $($added: Default::default(),)?
                })
            }
        }
        must_be_set!($model: pb::$wire);
        wire_whole!($model: pb::$wire, "message";);
    )* };
}

/// `Model { shape } = Message { fields }`: the shape is a pattern and an expression at once, over the names of the
/// message's fields.
macro_rules! wire_shapes {
    ($($model:ident $shape:tt = $wire:ident { $($field:ident),* })*) => { $(
        impl Wire<pb::$wire> for $model {
            fn to_wire(&self) -> pb::$wire {
                let $model $shape = self;
                pb::$wire { $($field: Wire::to_wire($field)),* }
            }

            fn from_wire(_: &'static str, wire: pb::$wire) -> Result<Self, Invalid> {
                let pb::$wire { $($field),* } = wire;
                $(let $field = Wire::from_wire(stringify!($field), $field)?;)*
                Ok($model $shape)
            }
        }
        must_be_set!($model: pb::$wire);
        wire_whole!($model: pb::$wire, "message";);
    )* };
}

/// `Model = module::Oneof { Variant, Variant(part), Variant { field }, Variant = Message { as above } }`. A variant without
/// anything is an empty message; `without` names a flag of the message that must not be set.
macro_rules! wire_oneof {
    (@to) => { pb::Empty {} };
    (@to ($value:ident)) => { Wire::to_wire($value) };
    (@to { $value:ident }) => { Wire::to_wire($value) };
    (@to = $wire:ident { $($same:ident),* $(; $($from:ident: $to:ident),+)? } $($flag:ident)?) => {
        pb::$wire {
            $($same: Wire::to_wire($same),)*
            $($($from: Wire::to_wire($to),)+)?
            $($flag: false,)?
        }
    };
    (@from $read:ident $model:ident $variant:ident) => {{ let pb::Empty {} = $read; $model::$variant }};
    (@from $read:ident $model:ident $variant:ident ($value:ident)) => {
        $model::$variant(Wire::from_wire(stringify!($value), $read)?)
    };
    (@from $read:ident $model:ident $variant:ident { $value:ident }) => {
        $model::$variant { $value: Wire::from_wire(stringify!($value), $read)? }
    };
    (@from $read:ident $model:ident $variant:ident
        = $wire:ident { $($same:ident),* $(; $($from:ident: $to:ident),+)? } $($flag:ident)?
    ) => {{
        let pb::$wire { $($same,)* $($($from,)+)? $($flag)? } = $read;
        $(if $flag {
            return Err(Invalid::new(stringify!($flag), "false in what is to be done", true));
        })?
        $model::$variant {
            $($same: Wire::from_wire(stringify!($same), $same)?,)*
            $($($to: Wire::from_wire(stringify!($from), $from)?,)+)?
        }
    }};
    ($model:ident = $module:ident::$oneof:ident { $(
        $variant:ident $(($value:ident))? $({ $only:ident })?
        $(= $wire:ident { $($same:ident),* $(; $($from:ident: $to:ident),+)? } $(without $flag:ident)?)?
    ),* $(,)? }) => {
        impl Wire<pb::$module::$oneof> for $model {
            fn to_wire(&self) -> pb::$module::$oneof {
                match self { $(
                    $model::$variant $(($value))? $({ $only })? $({ $($same,)* $($($to,)+)? })? => {
                        pb::$module::$oneof::$variant(wire_oneof!(
                            @to $(($value))? $({ $only })?
                            $(= $wire { $($same),* $(; $($from: $to),+)? } $($flag)?)?
                        ))
                    }
                )* }
            }

            fn from_wire(_: &'static str, wire: pb::$module::$oneof) -> Result<Self, Invalid> {
                Ok(match wire { $(
                    pb::$module::$oneof::$variant(read) => wire_oneof!(
                        @from read $model $variant $(($value))? $({ $only })?
                        $(= $wire { $($same),* $(; $($from: $to),+)? } $($flag)?)?
                    ),
                )* })
            }
        }
        must_be_set!($model: pb::$module::$oneof);
    };
}

/// `Model: Message.field`: a message that has nothing but a choice, which must be made.
macro_rules! wire_choices {
    ($($model:ident: $wire:ident.$field:ident, $name:literal;)*) => { $(
        impl Wire<pb::$wire> for $model {
            fn to_wire(&self) -> pb::$wire {
                pb::$wire { $field: Wire::to_wire(self) }
            }

            fn from_wire(field: &'static str, pb::$wire { $field }: pb::$wire) -> Result<Self, Invalid> {
                Wire::from_wire(field, $field)
            }
        }
        must_be_set!($model: pb::$wire);
        wire_whole!($model: pb::$wire, $name;);
    )* };
}

/// `Model { values }`: enums that stand for each other value by value. The wire's 0 is refused, or stands for the value
/// after `||`.
macro_rules! wire_enums {
    ($($model:ident { $($value:ident),* } $(|| $unspecified:ident)?)*) => { $(
        impl Wire<i32> for $model {
            fn to_wire(&self) -> i32 {
                match self { $($model::$value => pb::$model::$value,)* }.into()
            }

            fn from_wire(field: &'static str, wire: i32) -> Result<Self, Invalid> {
                match known(field, wire)? {
                    pb::$model::Unspecified => wire_enums!(@unspecified field $($model::$unspecified)?),
                    $(pb::$model::$value => Ok($model::$value),)*
                }
            }
        }
        must_be_set!($model: i32);
    )* };
    (@unspecified $field:ident) => { Err(unknown($field, "unspecified")) };
    (@unspecified $field:ident $value:expr) => { Ok($value) };
}

pub(super) use {must_be_set, wire_choices, wire_enums, wire_messages, wire_oneof, wire_shapes, wire_whole};
