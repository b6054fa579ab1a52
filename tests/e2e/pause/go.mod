// What holds the namespaces of a pod on a node of real parts.
module pause

go 1.24.0
