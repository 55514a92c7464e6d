"""Generated and private: these names may change with any release. Use what `dormouse` exports."""
