// Empty; see constructor.go.
