"""The columns of tables: types, new fields, differences between schemas."""
