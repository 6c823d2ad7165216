// Symbolication
