"""OKD's router, which is a HAProxy that reads OpenShift's Routes."""
