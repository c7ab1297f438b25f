"""OKD's router, whose proxy is a HAProxy, and which reads OpenShift's Routes."""
