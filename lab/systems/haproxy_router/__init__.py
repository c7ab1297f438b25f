"""OKD's router (openshift/router), which reads OpenShift's Routes and whose proxy is a HAProxy."""
